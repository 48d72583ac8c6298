"""A command in a terminal of its own: what a person would see, and Ctrl-C."""

import asyncio
import fcntl
import os
import re
import struct
import sys
import termios
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.cli.test_commands import environment
from tests.processes import WarmProcess, start_warm
from tests.waiting import patience

_CODES = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")
CTRL_C = b"\x03"


class Terminal:
    """What was printed so far, and the keyboard."""

    def __init__(self, process: WarmProcess, keyboard: int) -> None:
        self.process, self._keyboard = process, keyboard
        self.raw = ""
        self._news, self._closed = asyncio.Event(), asyncio.Event()

    @property
    def text(self) -> str:
        """Without what moves the cursor or colours."""
        return _CODES.sub("", self.raw)

    def press(self, keys: bytes) -> None:
        os.write(self._keyboard, keys)

    async def until(self, *patterns: str) -> str:
        """Wait until all of these were printed."""
        async with patience():
            while not all(re.search(pattern, self.text) for pattern in patterns):
                assert self.process.returncode is None, self.text
                self._news.clear()
                await self._news.wait()
        return self.text

    async def ended(self) -> int:
        """Wait for its end, and for the last that it printed."""
        async with patience():
            code = await self.process.wait()
            await self._closed.wait()
        return code

    def heard(self) -> None:
        """The process printed something, or closed its side."""
        try:
            self.raw += os.read(self._keyboard, 1 << 16).decode(errors="replace")
        except OSError:  # it is gone
            asyncio.get_running_loop().remove_reader(self._keyboard)
            self._closed.set()
        self._news.set()


@asynccontextmanager
async def in_terminal(
    folder: Path, *arguments: str, rows: int = 30, columns: int = 100, **variables: str
) -> AsyncGenerator[Terminal]:
    """Run `tidegate` in a terminal; it is killed in the end if it has not ended by itself."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    surroundings = environment(folder, TERM="xterm-256color", **variables)
    del surroundings["COLUMNS"]
    process = await start_warm(
        *(str(Path(sys.executable).with_name("tidegate")), *arguments),
        owns_terminal=True,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=surroundings,
    )
    os.close(theirs)
    terminal = Terminal(process, ours)
    asyncio.get_running_loop().add_reader(ours, terminal.heard)
    try:
        yield terminal
    finally:
        asyncio.get_running_loop().remove_reader(ours)
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)
