"""Has imported everything, and forks on request: `-m tests.processes.fork_server ADDRESS`.

It ends when its standard input does, because whoever started it has ended in whatever way; its children end with it.
"""

import asyncio
import atexit
import fcntl
import gc
import importlib
import os
import pkgutil
import runpy
import signal
import socket
import sys
import termios
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

import tidegate.app
import tidegate.app.cli
import tidegate.http
import tidegate.systems
import tidegate_simulators
from tests.processes.order import Born, Ended, Order

_LARGEST_ORDER = 1 << 20
_SERVERS = ("alembic.command", "asyncmy", "asyncpg", "uvicorn", "pymongo")


class ForkServer:
    """Serves one connection for each process: the order comes in, its number and its end go out."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._lives: dict[int, socket.socket] = {}

    def run(self) -> None:
        """Serve until standard input ends."""
        asyncio.run(self._serve())
        for pid in self._lives:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def _serve(self) -> None:
        loop, orphaned = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(0, orphaned.set)
        loop.add_reader(self._listener, self._hear)
        loop.add_signal_handler(signal.SIGCHLD, self._bury)
        await orphaned.wait()
        loop.remove_signal_handler(signal.SIGCHLD)

    def _hear(self) -> None:
        connection, _ = self._listener.accept()
        size = int.from_bytes(connection.recv(4))
        said, streams, _, _ = socket.recv_fds(connection, _LARGEST_ORDER, 3)
        while len(said) < size:
            said += connection.recv(_LARGEST_ORDER)
        order = msgspec.json.decode(said, type=Order)
        if pid := os.fork():
            self._lives[pid] = connection
            for stream in streams:
                os.close(stream)
            _tell(connection, Born(pid))
        else:
            _live(order, streams)

    def _bury(self) -> None:
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                with self._lives.pop(found[0]) as connection, suppress(OSError):  # whoever asked may be gone
                    _tell(connection, Ended(os.waitstatus_to_exitcode(found[1])))


def _tell(connection: socket.socket, event: Born | Ended) -> None:
    connection.sendall(msgspec.json.encode(event) + b"\n")


def _live(order: Order, streams: list[int]) -> None:
    """The child's life: become what was asked for, and end as a process of its own would."""
    code = 70
    try:
        _settle_in(order, streams)
        code = _code_of(_task(order.command))
        threading._shutdown()  # type: ignore[attr-defined]  # pyright: ignore
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        sys.stdout.flush()
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def _settle_in(order: Order, streams: list[int]) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.default_int_handler)
    asyncio.events._set_running_loop(None)
    asyncio.set_event_loop(None)
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
    os.closerange(3, 65_536)
    if order.owns_terminal:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    time.tzset()
    atexit._clear()  # pyright: ignore[reportPrivateUsage]
    # As an interpreter that starts would have them.
    code = order.environment.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding=code, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding=code, closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, encoding=code, errors="backslashreplace", closefd=False)


def _task(command: list[str]) -> Callable[[], object]:
    program, *arguments = command
    if Path(program).name == "tidegate":
        sys.argv = command
        return tidegate.app.cli.main
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, str(Path.cwd()))
        return lambda: runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, str(Path.cwd()))
        return lambda: exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).parent))
    return lambda: runpy.run_path(arguments[0], run_name="__main__")


def _code_of(task: Callable[[], object]) -> int:
    try:
        task()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
            return 1
        return ended.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _import_everything() -> None:
    for package in (tidegate.app, tidegate.systems, tidegate.http, tidegate_simulators):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for name in _SERVERS:
        importlib.import_module(name)


if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(sys.argv[1])
        server.listen(64)
        _import_everything()
        gc.freeze()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        ForkServer(server).run()
