"""A server that speaks MongoDB's protocol: PyPI's nx-27017, or whatever the environment names.

It is not MongoDB, and knows only the plain operations; a real one can be named by `TIDEGATE_TEST_MONGO_URL`.
"""

import os
import secrets
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from pymongo import AsyncMongoClient

from tests.servers.guarded import GuardedServer, new_folder
from tests.servers.ports import free_port
from tests.servers.registry import record_used, skip_or_fail

REAL_SERVER = "TIDEGATE_TEST_MONGO_URL"
"""The address of a MongoDB for the tests, without a database; they make their own and remove them."""

_NAME = "MongoDB"


class Nx27017:
    """The server, in a folder of its own."""

    def __init__(self) -> None:
        self.port = free_port()
        folder = new_folder(None)
        command = [sys.executable, "-c", "from nx_27017.nx_27017 import main; main()"]
        command += ["--host", "127.0.0.1", "-p", str(self.port), "--data-dir", str(folder / "data"), "-j", "OFF"]
        command += ["--log-file", str(folder / "log"), "--pid-file", str(folder / "pid")]
        self._server = GuardedServer(folder, command, ready="Listening on", signal="KILL", user=None)
        self.url = f"mongodb://127.0.0.1:{self.port}"


@asynccontextmanager
async def mongo_database() -> AsyncGenerator[str]:
    """The URL of a new, empty database; the test is skipped (or fails) when this machine has no server."""
    server = os.environ.get(REAL_SERVER) or _started().url
    name = f"t{secrets.token_hex(6)}"
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(server)
    try:
        if REAL_SERVER in os.environ:
            record_used(_NAME, str((await client.server_info())["version"]))
        yield f"{server.rstrip('/')}/{name}"
        await client.drop_database(name)
    finally:
        await client.close()


def mongo_port() -> int:
    """Where the stand-in listens, for tests that put a wire in between."""
    return _started().port


def _started() -> Nx27017:
    return _nx_27017() or skip_or_fail(_NAME, f"nx-27017 is not installed: make install (or set {REAL_SERVER})")


@cache
def _nx_27017() -> Nx27017 | None:
    if find_spec("nx_27017") is None:
        return None
    record_used(_NAME, f"nx-27017 {version('nx-27017')}")
    return Nx27017()
