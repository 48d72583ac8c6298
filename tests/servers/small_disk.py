"""A disk of a few MB that a test can fill, and empty again."""

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SIZE_MB = 64


class SmallDisk:
    """A file system of its own; everything that fills it goes into one file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no space at all."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1024 * 1024, 4096):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def free(self) -> None:
        """Make space again."""
        self._ballast.unlink()


@contextmanager
def small_disk(folder: Path) -> Generator[SmallDisk]:
    """Mount one at `folder`; the test is skipped where that is not permitted."""
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={_SIZE_MB}m", "tidegate-test", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
