"""The archiver may be killed between any two steps."""

import signal
import sys
from pathlib import Path

import pytest

from tests.processes import start_warm
from tests.systems.snapshots.archive.dying_process import STEPS
from tests.systems.snapshots.archive.history_rows import ArchiveHarness
from tidegate.systems.snapshots.archive.object_storage import ObjectStorage

ROOT = Path(__file__).parents[3]


@pytest.mark.crash
@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_any_step_loses_nothing_and_the_next_run_completes_the_work(
    harness: ArchiveHarness, tmp_path: Path, in_folder: ObjectStorage, step: str
):
    subjects = await harness.fill(keys=4, days=[45, 44, 2])
    before = {each: await harness.history(in_folder, each) for each in subjects}
    url = f"sqlite:///{tmp_path / 'past.db'}"
    command = [sys.executable, "-m", "tests.systems.snapshots.archive.dying_process", url, in_folder.url, step]

    killed = await start_warm(*command, cwd=ROOT)
    assert await killed.wait() == -signal.SIGKILL

    async def told() -> dict[object, list[tuple[int, bytes]]]:
        return {each: [(e.version, e.body) for e in await harness.history(in_folder, each)] for each in subjects}

    expected = {each: [(entry.version, entry.body) for entry in entries] for each, entries in before.items()}
    left = await harness.rows()
    assert await told() == expected  # also right after the death, and however far it came
    assert await harness.move_all(in_folder) == left - len(subjects)
    assert await told() == expected
    assert await harness.rows() == len(subjects)
