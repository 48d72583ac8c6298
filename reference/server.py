"""What the server says of itself: everything is switched on, and its OpenAPI document is read, once."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

_KEY = "f" * 64
EVERYTHING = {
    "TIDEGATE_HTTP__API_KEY": _KEY,  # so that the document says who needs one
    "TIDEGATE_SNAPSHOTS__GAME__URL": "http://127.0.0.1:1",
    "TIDEGATE_SNAPSHOTS__GAME__API_KEY": "nobody-calls",
    "TIDEGATE_RANKING__BOARDS": '[{"name": "sales"}]',
    "TIDEGATE_LOG__LEVEL": "error",
}
"""Settings under which there is nothing that a server could offer and does not."""
_START_WITHIN_S = 60


async def openapi() -> Any:
    """The document of a server that has everything."""
    if not _documents():
        _documents().append(await _ask())
    return _documents()[0]


@cache
def _documents() -> list[Any]:
    return []


async def _ask() -> Any:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "GITHUB_"))}
    with TemporaryDirectory() as folder:
        server = await asyncio.create_subprocess_exec(
            *(str(Path(sys.executable).with_name("tidegate")), "serve", "--port", "0", "--json"),
            env=kept | EVERYTHING | {"TIDEGATE_DATA_DIR": folder},
            cwd=folder,
            stdout=PIPE,
            stderr=DEVNULL,
        )
        try:
            assert server.stdout is not None
            banner = await asyncio.wait_for(server.stdout.readline(), _START_WITHIN_S)
            assert banner, "the server did not start: try it by hand with the settings above"
            return await document_at(json.loads(banner)["url"])
        finally:
            if server.returncode is None:
                server.terminate()
            await server.communicate()


async def document_at(url: str) -> Any:
    """The document of the server that answers there, and has the key of `EVERYTHING`."""
    key = {"Authorization": f"Bearer {_KEY}"}
    async with aiohttp.ClientSession(headers=key) as session, session.get(f"{url}/openapi.json") as answer:
        answer.raise_for_status()
        return await answer.json()
