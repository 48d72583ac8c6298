"""Encryption keys for secrets: from the environment, otherwise from a private file in the data folder.

The first key encrypts; the others only decrypt what was encrypted with them before. The file is created under a lock,
written to a temporary name, synced and renamed. So concurrent processes get the same key, and a crash leaves either no
file or a complete one.
"""

import base64
import binascii
import fcntl
import hashlib
import hmac
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tidegate.core.errors import InvalidSettings
from tidegate.core.telemetry.logs import get_logger

log = get_logger(__name__)

VARIABLE = "TIDEGATE_CREDENTIALS_KEY"
FILE_NAME = "credentials.key"
_SIZE = 32
_LARGEST_FILE = 64 * 1024
_HOW = "a key is 32 random bytes in base64, as `openssl rand -base64 32` prints them"


@dataclass(frozen=True)
class EncryptionKey:
    """One encryption key. Each purpose uses its own derived key, so that one reveals nothing about another."""

    material: bytes

    def derive(self, purpose: str) -> bytes:
        """Derive the key material for one purpose."""
        return hmac.digest(self.material, f"tidegate/{purpose}/1".encode(), hashlib.sha256)

    @property
    def id(self) -> str:
        """An identifier of the key that reveals nothing about it."""
        return self.derive("id").hex()[:12]

    @property
    def text(self) -> str:
        """The key as it is written to the file."""
        return base64.b64encode(self.material).decode()

    @classmethod
    def new(cls) -> Self:
        """Generate a random key."""
        return cls(os.urandom(_SIZE))

    def __repr__(self) -> str:
        return f"Key({self.id})"


class KeySource:
    """Reads the keys of this deployment from their setting or their file, and creates the file."""

    def __init__(self, data_dir: Path, given: str | None = None) -> None:
        self._given = None if given is None else _parse(given.replace(",", "\n"), VARIABLE)
        self._path = data_dir / FILE_NAME

    @property
    def place(self) -> str:
        """Where an operator finds the keys: the file, or the name of the variable."""
        return str(self._path) if self._given is None else VARIABLE

    @property
    def is_file(self) -> bool:
        """Whether the keys are in a file, which can be rewritten."""
        return self._given is None

    def read(self) -> Sequence[EncryptionKey] | None:
        """All keys, the encrypting one first; None if there is no file yet."""
        if self._given is not None:
            return self._given
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidSettings(f"{self._path} cannot be read: {error.strerror}") from None
        try:
            self._require_private(os.fstat(descriptor))
            content = os.read(descriptor, _LARGEST_FILE)
        finally:
            os.close(descriptor)
        return _parse(content.decode("ascii", errors="replace"), str(self._path))

    def make(self) -> Sequence[EncryptionKey]:
        """Return the keys; creates a file with a new key unless another process has created it."""
        if self._given is not None:
            return self._given
        with self._alone():
            present = self.read()
            if present is not None:
                return present
            keys = [EncryptionKey.new()]
            self._write(keys)
        log.info("credentials.key_made", path=str(self._path), key_id=keys[0].id)
        return keys

    def begin_rotation(self, *, needed: set[str]) -> Sequence[EncryptionKey]:
        """Put a new key first. Old keys that are `needed` stay, and so does the previous first key.

        The previous first key stays until the next rotation, because another process may be using it at this moment.
        """
        with self._alone():
            old = self.read() or []
            keys = [EncryptionKey.new(), *(key for n, key in enumerate(old) if n == 0 or key.id in needed)]
            self._write(keys)
        log.info("credentials.key_made", path=str(self._path), key_id=keys[0].id)
        return keys

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Hold the lock of the key file. The lock ends with the process."""
        try:
            lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InvalidSettings(f"no key can be kept in {self._path.parent}: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, keys: Sequence[EncryptionKey]) -> None:
        unfinished = self._path.with_suffix(".new")
        unfinished.unlink(missing_ok=True)  # left by a process that died; its mode may differ
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write("".join(f"{key.text}\n" for key in keys).encode())
            file.flush()
            os.fsync(descriptor)
        # Atomic: a reader finds the former file or the complete new one.
        unfinished.replace(self._path)
        # The new name is durable only when the folder is synced too.
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _require_private(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise InvalidSettings(f"{self._path} is not a regular file")
        if status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            raise InvalidSettings(
                f"{self._path} has the mode {mode:o}, so other users can read it. Run `chmod 600 {self._path}`; if it "
                "may have been read, run `tidegate credentials rotate-key` too"
            )


def _parse(text: str, place: str) -> Sequence[EncryptionKey]:
    """Parse keys, one per line. Error messages never show the text."""
    lines = [line.strip() for line in text.splitlines()]
    keys = [_key(line, place) for line in lines if line and not line.startswith("#")]
    if not keys:
        raise InvalidSettings(f"{place} holds no key: {_HOW}. Restore it; delete it only if no credential is stored")
    return keys


def _key(line: str, place: str) -> EncryptionKey:
    try:
        material = base64.b64decode(line.replace("-", "+").replace("_", "/"), validate=True)
    except (ValueError, binascii.Error):
        material = b""
    if len(material) != _SIZE:
        raise InvalidSettings(f"{place} holds something that is no key: {_HOW}")
    return EncryptionKey(material)
