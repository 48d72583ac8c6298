"""Processes of the product, as its commands start them."""

import os
from asyncio.subprocess import PIPE
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.processes import WarmProcess, start_warm

from tidegate.settings import Settings

ROOT = Path(__file__).parents[1]
_OURS = "TIDEGATE_"

Choices = Mapping[str, Any]
"""Settings as a person writes them, nested as they are."""


class Process:
    """One of them, and where it answers."""

    def __init__(self, name: str, process: WarmProcess, said: Mapping[str, Any]) -> None:
        self.name, self._process, self.said = name, process, said
        self.url: str = said["url"]

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()

    async def stop(self) -> int:
        """Ask it to end, and wait until it has; its exit code."""
        self._process.terminate()
        return await self._process.wait()

    async def gone(self) -> int:
        """Wait until it has ended."""
        return await self._process.wait()


def environment(choices: Choices) -> dict[str, str]:
    """The environment of a process: of the settings only these."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return {**others, **{f"{_OURS}{name}": value for name, value in _flat(choices)}}


def _flat(choices: Choices, before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in choices.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name.upper()}__")  # pyright: ignore[reportUnknownArgumentType]
        elif value is not None:
            yield f"{before}{name.upper()}", str(value)


@contextmanager
def surroundings(choices: Choices) -> Generator[Settings]:
    """The same settings for this process, read as the others read them."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment(choices))
    try:
        yield Settings.load()
    finally:
        os.environ.clear()
        os.environ.update(before)


async def start_tidegate(name: str, *arguments: str, choices: Choices, log: Path) -> Process:
    """Run a command, and wait for its first line."""
    with log.open("ab") as errors:
        process = await start_warm(
            "tidegate", *arguments, "--json", cwd=log.parent, env=environment(choices), stdout=PIPE, stderr=errors
        )
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        await process.wait()
        raise ProcessLookupError(f"{name} could not start: {_last_words(log)}")
    return Process(name, process, msgspec.json.decode(line))


def _last_words(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-600:] or "it said nothing"
