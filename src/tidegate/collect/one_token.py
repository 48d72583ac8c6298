"""A single token, given by whoever starts the process, and kept in its memory alone."""

import hashlib
import hmac
import os
from pathlib import Path

from tidegate.flow.gate import CredentialLimits, Gate
from tidegate.kernel.errors import InvalidArgument, NotFound

_KEY_FILE = "credentials.key"


class OneToken:
    """The only credential of its pool. The gate and the log know it by a keyed hash, which tells nothing of it."""

    def __init__(self, token: str, *, pool: str, data_dir: Path, limits: CredentialLimits) -> None:
        if not token.strip() or not token.isascii() or not token.isprintable():
            raise InvalidArgument("token", "…", "must be a line of printable ASCII")
        self.pool, self._limits, self._token = pool, limits, token.strip()
        digest = hmac.new(_key(data_dir), self._token.encode(), hashlib.sha256).hexdigest()
        self.credential = f"token-{digest[:16]}"

    async def enrol(self, gate: Gate) -> None:
        """Let its pool use it."""
        await gate.enrol(self.credential, pool=self.pool, limits=self._limits)

    async def secret_of(self, credential: str) -> str:
        """The token itself."""
        if credential != self.credential:
            raise NotFound("credential", credential)
        return self._token

    def __repr__(self) -> str:
        return f"OneToken({self.credential}, pool={self.pool!r})"


def _key(data_dir: Path) -> bytes:
    """Made once for each installation; only its owner may read it."""
    path = data_dir / _KEY_FILE
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_bytes()
    with os.fdopen(descriptor, "wb") as file:
        key = os.urandom(32)
        file.write(key)
    return key
