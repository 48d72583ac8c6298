"""Plays scenarios one after the other, and shows how far they are."""

import asyncio
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from scenarios.machine import Meter
from scenarios.report import lines
from scenarios.scenario import Check, Result, Scenario
from scenarios.stage import On, Stage

_LONGEST_S = 180.0
_LAST_WORDS = 1_500


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller chose."""

    seconds: float
    body_bytes: int
    is_quiet: bool
    """Print nothing meanwhile."""


class Progress:
    """A status line that is overwritten on a terminal."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet, self._is_watched = is_quiet, sys.stderr.isatty()
        self._began, self._before = 0.0, ""

    def begin(self, before: str) -> None:
        """The prefix of the following lines."""
        self._began, self._before = time.monotonic(), before

    def tell(self, what: str) -> None:
        """The current step."""
        if self._is_quiet or not self._is_watched:
            return
        self._write(f"\r\x1b[K{self._before} {time.monotonic() - self._began:4.0f} s  {what}"[:150])

    def show(self, text: str) -> None:
        """Something that stays."""
        if not self._is_quiet:
            self._write(("\r\x1b[K" if self._is_watched else "") + text + "\n")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


async def perform(plays: Sequence[tuple[Scenario, On]], options: Options) -> list[Result]:
    """Run each, regardless of the results of the others."""
    progress = Progress(is_quiet=options.is_quiet)
    results: list[Result] = []
    for number, (scenario, on) in enumerate(plays, 1):
        progress.begin(f"[{number}/{len(plays)}] {scenario.number} on {on}")
        results.append(await _perform(scenario, on, options, progress))
        progress.show(lines(results[-1]))
    return results


async def _perform(scenario: Scenario, on: On, options: Options, progress: Progress) -> Result:
    began, meter = time.monotonic(), Meter()

    def result(*, checks: list[Check] | None = None, trouble: str | None = None, missing: str | None = None) -> Result:
        return Result(
            number=scenario.number,
            title=scenario.title,
            on=on,
            took_s=time.monotonic() - began,
            cost=meter.read(),
            checks=checks or [],
            trouble=trouble,
            missing=missing,
        )

    with tempfile.TemporaryDirectory(prefix="tidegate-scenario-", dir="/tmp") as folder:
        stage = Stage(
            on=on,
            folder=Path(folder),
            seconds=options.seconds,
            body_bytes=options.body_bytes,
            tell=progress.tell,
        )
        try:
            async with asyncio.timeout(_LONGEST_S + 5 * options.seconds):
                return result(checks=await scenario.play(stage))
        except pytest.skip.Exception as missing:  # how the servers of the tests say that this machine lacks one
            return result(missing=str(missing))
        except (Exception, pytest.fail.Exception) as error:
            return result(trouble=f"{_told(error)}\n{_last_words(stage.folder)}".strip())


def _told(error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)
    ours = next((each for each in reversed(where) if "/scenarios/" in each.filename), where[-1])
    return f"{type(error).__name__}: {error or 'it took too long'} ({Path(ours.filename).name}:{ours.lineno})"


def _last_words(folder: Path) -> str:
    """What the processes had to say."""
    said = [f"{log.name}: {text[-_LAST_WORDS:]}" for log in sorted(folder.glob("*.log")) if (text := log.read_text())]
    return "\n".join(said)
