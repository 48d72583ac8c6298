"""One report for a full disk, and one when it has space again."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tidegate.core.telemetry import disks
from tidegate.core.telemetry.disks import Disk


def test_a_failure_older_than_the_freed_space_is_not_reported_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    free = [0]

    def free_mb(folder: Path) -> int:
        del folder
        return free[0]

    monkeypatch.setattr(disks, "free_mb", free_mb)
    disk = Disk("the data folder", tmp_path)
    with capture_logs() as lines:
        disk.refused()
        disk.refused()
        free[0] = 63
        disk.accepted()
        disk.refused()  # what a server remembers of its last write
        disk.accepted()
        assert not disk.is_full

        free[0] = 0
        disk.refused()

    assert [line["event"] for line in lines] == ["disk.filled", "disk.freed", "disk.filled"]
