"""Binds Lua scripts to typed Python functions.

A script is a `.lua` file with a header as its contract, and a Python stub with an equivalent signature. The two are
compared when the stub's module is imported, and a difference raises `ContractBroken`:

    ---@key window  hash   cap, used, resets_at_ms
    ---@keys holds  hash   any number of keys of one type, the last of all keys: a list of them
    ---@keyset keys        the keys of `_keys.lua`, which several scripts share; they arrive as the table `keys`
    ---@arg cost    int
    ---@arg now_ms  time
    ---@include expire_holds
    -- Reply: {'granted', units_left} | {'exhausted', resets_at_ms}

    @lua_script("reserve.lua")
    async def _reserve(
        valkey: Valkey, *, window: Key, holds: list[Key], cost: int, now_ms: int | None
    ) -> list[Any]: ...

Keys and arguments arrive in Lua as locals of the same name, already converted:

    str, bytes   as they are              int, float   numbers
    packed       a whole batch of texts, numbers, lists and maps (no bytes): one argument, decoded by the server in C
    time         milliseconds: the caller's pinned clock, or the server's own where that is None

An include (`_name.lua` beside the script, else `includes/name.lua` beside this module) defines local functions, and
constants in capitals, and nothing else. It stands before the locals of the script, so its functions get keys and values
only as parameters. It may include others. A script is addressed by the SHA of its assembled text, so two releases can
run side by side, and is sent in full when the server does not know it.

Every script must be safe to repeat, because after a broken connection it is unknown whether it ran.
"""

import hashlib
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, get_args, get_type_hints

import msgspec
from msgspec import Raw
from redis.exceptions import NoScriptError

from tidegate.core.errors import ContractBroken
from tidegate.storage.valkey.connection import Valkey
from tidegate.storage.valkey.keys import Key


def as_text(value: bytes) -> Raw:
    """The bytes as a string, whatever they are."""
    return Raw(text_header(len(value)) + value)


def text_header(length: int) -> bytes:
    """What stands before a string of this many bytes."""
    # The forms of msgpack for strings: fixstr, str 16 and str 32.
    if length < 32:
        return bytes((0xA0 | length,))
    return b"\xda" + length.to_bytes(2) if length < 65_536 else b"\xdb" + length.to_bytes(4)


P = ParamSpec("P")
R = TypeVar("R")

_SHARED = Path(__file__).parent / "includes"
_DIRECTIVE = re.compile(r"^---@(key|keys|keyset|arg|include)\s+(\w+)(?:\s+(\w+))?(?:\s+.*)?$")
_CONSTANTS = re.compile(r"^local [A-Z][A-Z0-9_]*(, [A-Z][A-Z0-9_]*)* = [^{}]+$")
"""Numbers and texts. A table could be changed."""
_KEY_TYPES = frozenset({"string", "list", "hash", "set", "zset", "stream"})
_ANNOTATIONS: dict[str, Any] = {"str": str, "bytes": bytes, "int": int, "float": float, "time": int | None}
_FROM_LUA = {"str": "ARGV[{n}]", "bytes": "ARGV[{n}]", "packed": "cmsgpack.unpack(ARGV[{n}])"}
_SERVER_MS = "(function() local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000) end)()"
_pack = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True)
class Header:
    """What a Lua file says about itself."""

    keys: dict[str, str]
    """Each one key; the last may stand for any number of keys, see `many`."""
    args: dict[str, str]
    includes: list[str]
    has_reply: bool
    many: str | None = None
    """The name of the list of keys, where there is one."""
    keyset: str | None = None
    """The name of the set of keys that the script shares with others, where there is one."""
    shared: tuple[str, ...] = ()
    """The keys of that set: the first of `keys`."""


@dataclass
class _Assembly:
    """The includes of one script, each once, in the order they must stand."""

    folder: Path
    taken: dict[str, str] = field(default_factory=dict[str, str])
    under_way: list[str] = field(default_factory=list[str])

    def take(self, name: str) -> None:
        """Add the include `name` behind those it includes itself."""
        if name in self.taken:
            return
        # An include that is not taken yet, but was begun, includes itself through others.
        if name in self.under_way:
            raise ContractBroken(f"{self.folder.name}: includes form a cycle: {[*self.under_way, name]}")
        beside = self.folder / f"_{name}.lua"
        path = beside if beside.exists() else _SHARED / f"{name}.lua"
        if not path.exists():
            raise ContractBroken(f"{self.folder.name}: there is no include {name!r}")
        text = path.read_text()
        header = parse_header(path, text)
        self.under_way.append(name)
        for inner in header.includes:
            self.take(inner)
        self.under_way.pop()
        _check_include(path, header, text)
        self.taken[name] = text


def parse_header(path: Path, text: str) -> Header:
    """Read the directives in the comment block at the top of a Lua file."""
    header, many, keyset = Header({}, {}, [], has_reply="-- Reply:" in text), None, None
    in_header = True
    for line in text.splitlines():
        in_header = in_header and line.startswith("--")
        if not line.startswith("---@"):
            continue
        match = _DIRECTIVE.match(line)
        if match is None or not in_header:
            raise ContractBroken(f"{path.name}: {'cannot read' if in_header else 'below the header stands'} {line!r}")
        directive, name, kind = match.groups()
        if name in header.keys or name in header.args:
            raise ContractBroken(f"{path.name}: {name!r} is declared twice")
        if many is not None and directive in ("key", "keys"):
            raise ContractBroken(f"{path.name}: {many!r} must be the last of the keys, before {name!r}")
        if directive == "include":
            header.includes.append(name)
        elif directive == "keyset" and not header.keys:
            keyset = name
            header.keys.update(_keys_of_set(path, name))
        elif directive in ("key", "keys") and kind in _KEY_TYPES:
            header.keys[name] = kind
            many = name if directive == "keys" else None
        elif directive == "arg" and (kind in _ANNOTATIONS or kind == "packed"):
            header.args[name] = kind
        else:
            raise ContractBroken(f"{path.name}: {name!r} has no known type: {kind!r}")
    shared = tuple(_keys_of_set(path, keyset)) if keyset else ()
    return replace(header, many=many, keyset=keyset, shared=shared)


def _keys_of_set(path: Path, name: str) -> dict[str, str]:
    """The keys that `_name.lua` beside the script declares."""
    declared = path.parent / f"_{name}.lua"
    if not declared.exists():
        raise ContractBroken(f"{path.name}: there is no set of keys {name!r}")
    return parse_header(declared, declared.read_text()).keys


def _check_include(path: Path, header: Header, text: str) -> None:
    """Raise unless the file defines only functions, which cannot share anything that changes."""
    if header.keys or header.args:
        raise ContractBroken(f"{path.name}: an include gets keys and values as parameters of its functions")
    in_function = False
    for line in text.splitlines():
        if in_function:
            in_function = line != "end"
        elif line.startswith("local function "):
            in_function = not line.endswith(" end")
        elif line and not line.startswith("--") and not _CONSTANTS.match(line):
            raise ContractBroken(f"{path.name}: an include may define only functions and constants, not {line!r}")


def _prologue(header: Header) -> str:
    """The line that turns KEYS and ARGV into locals."""
    parts = [
        f"local {name} = {{}} for n = {n}, #KEYS do {name}[n - {n - 1}] = KEYS[n] end"
        if name == header.many
        else f"local {name} = KEYS[{n}]"
        for n, name in enumerate(header.keys, 1)
        if name not in header.shared
    ]
    if header.keyset:
        fields = ", ".join(f"{name} = KEYS[{n}]" for n, name in enumerate(header.shared, 1))
        parts.insert(0, f"local {header.keyset} = {{{fields}}}")
    for n, (name, kind) in enumerate(header.args.items(), 1):
        value = _FROM_LUA.get(kind, "tonumber(ARGV[{n}])").format(n=n)
        parts.append(f"local {name} = {value}" + (f" or {_SERVER_MS}" if kind == "time" else ""))
    return " ".join(parts)


def _assemble(path: Path) -> tuple[Header, str]:
    """Return the header of a script, and its complete text: includes, the locals for keys and arguments, the file."""
    if not path.exists():
        raise ContractBroken(f"{path.parent.name}: there is no script {path.name!r}")
    text = path.read_text()
    header = parse_header(path, text)
    if not header.keys:
        raise ContractBroken(f"{path.name}: a script needs at least one key, or a cluster cannot place it")
    assembly = _Assembly(path.parent)
    for name in header.includes:
        assembly.take(name)
    return header, "\n".join([*assembly.taken.values(), _prologue(header), text])


def _stub_parameters(path: Path, stub: Callable[..., Any]) -> dict[str, Any]:
    """The stub's keyword arguments with their types; `**keys: Unpack[SomeDict]` stands for its fields, in front."""
    hints = get_type_hints(stub)
    grouped, single = dict[str, Any](), dict[str, Any]()
    for parameter in list(inspect.signature(stub).parameters.values())[1:]:
        hint = hints[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            (fields,) = get_args(hint)
            grouped |= get_type_hints(fields)
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            single[parameter.name] = hint
        else:
            raise ContractBroken(f"{path.name}: {parameter.name!r} must be keyword-only")
    return grouped | single


def _check_stub(path: Path, header: Header, stub: Callable[..., Any]) -> None:
    """Raise unless the stub's arguments are the header's keys and arguments, in order, with their types."""
    parameters = _stub_parameters(path, stub)
    declared = dict.fromkeys(header.keys, "key") | ({header.many: "keys"} if header.many else {}) | header.args
    if list(parameters) != list(declared):
        raise ContractBroken(f"{path.name} declares {list(declared)}, its stub {list(parameters)}")
    scalars = [*_ANNOTATIONS.values(), Key, list[Key]]
    wanted = {**_ANNOTATIONS, "key": Key, "keys": list[Key]}
    for name, kind in declared.items():
        hint = parameters[name]
        fits = hint not in scalars if kind == "packed" else hint == wanted[kind]
        if not fits:
            raise ContractBroken(f"{path.name}: {name!r} is {kind} in Lua and {hint} in Python")


@dataclass(frozen=True)
class ScriptCall:
    """A script with its arguments, ready to be sent."""

    script: "Script[..., Any]"
    parameters: tuple[Any, ...]

    def by_sha(self) -> tuple[Any, ...]:
        """The short form, for a server that knows the script."""
        return ("EVALSHA", self.script.sha, *self.parameters)

    def in_full(self) -> tuple[Any, ...]:
        """The long form. The server keeps the script, so that the short form works afterwards."""
        return ("EVAL", self.script.source, *self.parameters)


class Script(Generic[P, R]):
    """A Lua file, callable like its stub."""

    def __init__(self, path: Path, stub: Callable[..., Any]) -> None:
        self.path = path
        self.header, self.source = _assemble(path)
        _check_stub(path, self.header, stub)
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        self.__doc__ = stub.__doc__

    async def __call__(self, valkey: Valkey, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it, and return the server's reply as it is."""
        call = self.bind(*args, **kwargs)
        try:
            return await valkey.execute(*call.by_sha())
        except NoScriptError:
            return await valkey.execute(*call.in_full())

    def bind(self, *_: P.args, **kwargs: P.kwargs) -> ScriptCall:
        """The call itself, to be sent by `run_together` or `run_apart`."""
        keys: list[Any] = [kwargs[name] for name in self.header.keys if name != self.header.many]
        if self.header.many is not None:
            keys += cast("list[Key]", kwargs[self.header.many])
        # The part of a key up to `}` decides about its slot in a cluster.
        if len({key.partition("}")[0] for key in keys}) > 1:
            raise ContractBroken(
                f"{self.path.name}: {keys} are not of one unit: a cluster cannot change them in one step"
            )
        arguments = [_encode(kind, kwargs[name]) for name, kind in self.header.args.items()]
        return ScriptCall(self, (len(keys), *keys, *arguments))


def _encode(kind: str, value: Any) -> Any:
    if kind == "packed":
        return _pack(value)
    return "" if value is None else value


async def run_together(valkey: Valkey, calls: Sequence[ScriptCall]) -> list[Any]:
    """Send many calls in one round trip; replies in the order of the calls, each atomic, the whole not.

    Calls the server did not know are sent again in full: they ran behind the others, so nothing may depend on order.
    """
    # Most servers know the scripts, so only the hashes are sent.
    replies = await valkey.pipeline([call.by_sha() for call in calls])
    unknown = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    if unknown:
        for n, reply in zip(unknown, await valkey.pipeline([calls[n].in_full() for n in unknown]), strict=True):
            replies[n] = reply
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


async def run_apart(valkey: Valkey, call: ScriptCall, *, within_s: float) -> Any:
    """Send one call on a connection of its own; see `Valkey.execute_apart`."""
    try:
        return await valkey.execute_apart(*call.by_sha(), within_s=within_s)
    except NoScriptError:
        return await valkey.execute_apart(*call.in_full(), within_s=within_s)


_registry: dict[Path, Script[..., Any]] = {}


def all_scripts() -> Iterable[Script[..., Any]]:
    """All scripts of imported modules."""
    return _registry.values()


def lua_script(
    file: str,
) -> Callable[[Callable[Concatenate[Valkey, P], Awaitable[R]]], Script[P, R]]:
    """Bind a stub to the Lua file beside its module; raise `ContractBroken` where they differ."""

    def bind(stub: Callable[Concatenate[Valkey, P], Awaitable[R]]) -> Script[P, R]:
        module_file = sys.modules[stub.__module__].__file__
        assert module_file is not None, "a stub lives in a file"
        script: Script[P, R] = Script(Path(module_file).parent / file, stub)
        _registry[script.path] = script
        return script

    return bind
