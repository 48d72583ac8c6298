"""Object storage: a folder, or anything that speaks S3. Needs the extra `archive`."""

import io
import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, from_url

from tidegate.core.errors import ServerRefused, Unavailable
from tidegate.core.telemetry.redaction import redact_text

_RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
_REMEDY = "See that the environment has credentials that may write there (AWS_ACCESS_KEY_ID and its kin)"


class StorageUnavailable(Unavailable):
    """The object storage did not answer as it should; trying again later is right."""


class FileGone(StorageUnavailable):
    """The file is not there: it was deleted."""


class FileCold(StorageUnavailable):
    """The file is in a cold storage class, and must be restored before it can be read."""


def folder_of(url: str) -> Path:
    """The folder that a `file:` URL names."""
    return Path(unquote(urlsplit(url).path))


class ObjectStorage:
    """Files by their names. What was `put` and did not raise is there after a crash of the machine."""

    def __init__(self, url: str, cold: Path | None = None) -> None:
        """`url` names a place and nothing else: credentials come from the environment.

        `cold`: the folder to which old files of a folder are moved; they are read from there.
        """
        self.url, self._cold = url, cold
        self._folder = folder_of(url) if urlsplit(url).scheme == "file" else None
        with self._troubles_told("open it"):
            if self._folder is not None:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._store: Any = LocalStore(self._folder)
            else:
                self._store = from_url(url, retry_config=_RETRIES)

    async def put(self, name: str, content: bytes) -> None:
        """Write a file, all of it or nothing; one that is there is replaced."""
        with self._troubles_told(f"write {name}"):
            await obstore.put_async(self._store, name, content)
            if self._folder is not None:
                make_durable(self._folder / name, self._folder)

    async def get(self, name: str) -> bytes:
        """All of a file."""
        with self._troubles_told(f"read {name}"):
            try:
                answer = await obstore.get_async(self._store, name)
            except FileNotFoundError:
                answer = await obstore.get_async(self._cold_store(), name)
            return bytes(await answer.bytes_async())

    async def names(self) -> list[str]:
        """Of all files."""
        with self._troubles_told("list it"):
            found = [entry["path"] async for some in obstore.list(self._store) for entry in some]
        return sorted(found)

    def open(self, name: str, size: int) -> "RangeFile":
        """A file of which parts are read when they are needed; blocks whoever reads it, so not on the event loop."""
        return RangeFile(self, name, size)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """A part of a file; blocks."""
        with self._troubles_told(f"read {name}"):
            try:
                return bytes(obstore.get_range(self._store, name, start=start, length=length))
            except FileNotFoundError:  # it is moved before it is removed, so it is in the other place by now
                return bytes(obstore.get_range(self._cold_store(), name, start=start, length=length))

    def _cold_store(self) -> Any:
        if self._cold is None or not self._cold.is_dir():
            raise FileNotFoundError("it is not there")
        return LocalStore(self._cold)

    @contextmanager
    def _troubles_told(self, what: str) -> Generator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise FileGone(f"{self.url}: could not {what}: {_first_line(error)}") from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            if "InvalidObjectState" in str(error):
                raise FileCold(f"{self.url}: could not {what}: it is in a cold storage class") from None
            raise ServerRefused(self.url, f"it refused to {what}: {_first_line(error)}", remedy=_REMEDY) from None
        except (BaseError, OSError, ValueError) as error:
            message = f"{self.url}: could not {what}: {_first_line(error)}"
            raise StorageUnavailable(message, server=self.url) from None

    def __repr__(self) -> str:
        return f"ObjectStorage({self.url})"


class RangeFile(io.RawIOBase):
    """A file in object storage, for those who expect one that can be sought in."""

    def __init__(self, storage: ObjectStorage, name: str, size: int) -> None:
        super().__init__()
        self._storage, self._name, self._size, self._at = storage, name, size, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go there."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """The next bytes; none at the end."""
        left = max(0, self._size - self._at)
        length = left if size < 0 else min(size, left)
        if length == 0:
            return b""
        content = self._storage.read_range(self._name, self._at, length)
        self._at += len(content)
        return content


def make_durable(path: Path, root: Path) -> None:
    """The content, and the names on the way to it: what is deleted elsewhere next must not be lost with the power."""
    for place in (path, *(parent for parent in path.parents if parent == root or root in parent.parents)):
        handle = os.open(place, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _first_line(error: BaseException) -> str:
    """The rest is for those who mend the library."""
    return redact_text((str(error).splitlines() or [type(error).__name__])[0][:300])
