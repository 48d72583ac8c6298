"""A server of nothing but memory and a clock that stands until it is moved; it runs the real scripts."""

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from lupa.lua51 import LuaRuntime  # the Lua of Valkey and Redis

from tidegate.storage.valkey import Unit
from tidegate.storage.valkey.scripts import all_scripts

T = TypeVar("T")

_COMMANDS = Path(__file__).with_name("server.lua")


class SimulatedServer:
    """What `Coalescer` takes for its `Valkey`. Nothing in it ever waits."""

    def __init__(self) -> None:
        lua: Any = cast("Any", LuaRuntime)(encoding=None, unpack_returned_tuples=True)
        self._server: Any = lua.execute(_COMMANDS.read_bytes())
        self._run, self._call = self._server.run, self._server.call
        self._scripts = {script.sha: lua.compile(script.source.encode()) for script in all_scripts()}
        self._units: dict[str, Unit] = {}

    def unit(self, name: str) -> Unit:
        """See `Valkey.unit`."""
        unit = self._units.get(name)
        if unit is None:
            unit = self._units[name] = Unit("sim", name)
        return unit

    async def execute(self, *command: Any) -> Any:
        """See `Valkey.execute`."""
        name, *arguments = command
        if name != "EVALSHA":
            reply = self._call(name.encode(), *map(_encoded, arguments))
            return None if reply is False else reply
        sha, count, *given = arguments
        reply = self._run(self._scripts[sha], count, *map(_encoded, given))
        return list(reply) if isinstance(reply, tuple) else reply

    async def pipeline(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """See `Valkey.pipeline`."""
        return [await self.execute(*each) for each in commands]

    def set_time(self, now_ms: int) -> None:
        """What time it is here."""
        self._server.set_time(now_ms)

    def flush(self) -> None:
        """Forget everything."""
        self._server.flush()

    def save(self) -> None:
        """Store the current state."""
        self._server.save()

    def restore(self) -> None:
        """Be as it was when it was last saved."""
        self._server.restore()

    def reset(self) -> None:
        """Begin again, as new."""
        self._server.reset()


def at_once(work: "Coroutine[Any, Any, T]") -> T:
    """The result of something that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waited")


def _encoded(value: str | int | bytes) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return b"%d" % value if isinstance(value, int) else value
