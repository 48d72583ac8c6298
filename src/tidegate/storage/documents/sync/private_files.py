"""Creates the files and folders of a sync for their user alone, whatever the umask of the process is."""

import os
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_umask = threading.Lock()
_FILE, _FOLDER = 0o600, 0o700


def create_private_folder(folder: Path) -> None:
    """Create a folder and those above it; folders that exist keep their permissions."""
    if not folder.parent.exists():
        create_private_folder(folder.parent)
    if not folder.is_dir():
        folder.mkdir(_FOLDER, exist_ok=True)
        folder.chmod(_FOLDER)  # a umask may have taken more away


def create_private_file(path: Path, *, like: Path | None = None) -> None:
    """Create an empty file, or empty it. One that replaces `like` has the permissions of that file, if it exists."""
    mode = _FILE if like is None or not like.exists() else stat.S_IMODE(like.stat().st_mode)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


@contextmanager
def private_umask() -> Generator[None]:
    """Make files private that a library creates meanwhile. The umask belongs to the process: one thread at a time."""
    with _umask:
        before = os.umask(0o077)
        try:
            yield
        finally:
            os.umask(before)
