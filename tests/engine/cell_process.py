"""One process that knows one source: `-m tests.engine.cell_process SOURCE DATA_DIR URL LEASE_MS`; its test kills it."""

import sys
from datetime import timedelta
from pathlib import Path

import uvloop

from tests.engine.conftest import LIMITS
from tests.engine.process import Ready, RemoteShelfSource
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine.collection import open_sources
from tidegate.engine.credentials.memory_tokens import Tokens
from tidegate.primitives.membership import MembershipSettings
from tidegate.settings import Settings


class NamedShelfSource(RemoteShelfSource):
    """The source of shelves under another name."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(url)
        self.name = name


class UnreachableBookshop(NamedShelfSource):
    """A source for the setting `sources`; no upstream answers at its address."""

    def __init__(self) -> None:
        super().__init__("bookshop", "http://127.0.0.1:1")


def tokens_of(source: str) -> Tokens:
    return Tokens(source, {"librarian": "secret"}, limits=LIMITS)


async def main(source: str, data_dir: Path, url: str, lease: timedelta) -> None:
    membership = MembershipSettings(lease=lease, renew_every=lease * 0.7)
    settings = Settings(data_dir=data_dir, membership=membership)
    async with open_sources(settings, [NamedShelfSource(source, url)], tokens_of(source)) as collection:
        await collection.process(services={"ready": Ready()}).run(handle_signals=True)


if __name__ == "__main__":
    configure_logs(level="error")
    name, folder, address, lease_ms = sys.argv[1:]
    uvloop.run(main(name, Path(folder), address, timedelta(milliseconds=int(lease_ms))))
