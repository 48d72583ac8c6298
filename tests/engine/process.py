"""One process that collects shelves: `-m tests.engine.process DATA_DIR URL LEASE_MS`; its test kills it."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import uvloop

from tests.engine.conftest import LIMITS, POOL
from tests.engine.shelf import HOST, ShelfSource
from tidegate.connections import open_context
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine.source import Task
from tidegate.engine.source_cell import CollectDependencies, Collector
from tidegate.engine.upstream import Request, UpstreamClient
from tidegate.primitives.membership import MembershipSettings
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.storage.documents import SqlDocuments


class RemoteShelfSource(ShelfSource):
    """The same source, with its upstream in another process."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def request(self, task: Task, secret: str) -> Request:
        local = super().request(task, secret)
        return Request(url=local.url.replace(HOST, self._url), purpose=local.purpose, headers=local.headers)


class Ready:
    """Says that the process works and heeds signals."""

    async def run(self, stopping: asyncio.Event) -> None:
        print("working", flush=True)
        await stopping.wait()


class Secrets:
    async def secret_of(self, credential: str) -> str:
        return f"secret of {credential}"


async def main(data_dir: Path, url: str, lease: timedelta) -> None:
    membership = MembershipSettings(lease=lease, renew_every=lease * 0.7)
    async with open_context(Settings(data_dir=data_dir, membership=membership)) as parts, UpstreamClient() as client:
        dependencies = CollectDependencies(
            parts.database, parts.gate, parts.jobs, parts.owner, SqlDocuments(parts.database)
        )

        async def register() -> None:
            await parts.gate.register("librarian", pool=POOL, limits=LIMITS)

        collector = Collector(
            dependencies, [RemoteShelfSource(url)], caller=client, secrets=Secrets(), register_credentials=register
        )
        process = build_process(
            parts,
            handlers=collector.handlers,
            services={**collector.services, "ready": Ready()},
            leader_services={"recovery": collector.recovery_service},
            on_death=[collector.recovery_service.notify],
        )
        await process.run(handle_signals=True)


if __name__ == "__main__":
    configure_logs(level="error")
    uvloop.run(main(Path(sys.argv[1]), sys.argv[2], timedelta(milliseconds=int(sys.argv[3]))))
