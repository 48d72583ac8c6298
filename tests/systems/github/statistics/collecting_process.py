"""`-m tests.systems.github.statistics.collecting_process DATA_DIR URL TOKEN STOPS`: collect from a simulated GitHub.

Where `STOPS` is 1, it says when statistics are computed, and does not complete the run; its test kills it.
"""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import uvloop

from tests.systems.github.deployment import LIMITS
from tidegate.connections import open_context
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine.runs import Run
from tidegate.engine.source_cell import CollectDependencies, Collector
from tidegate.engine.upstream import UpstreamClient
from tidegate.primitives.membership import MembershipSettings
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.storage.documents import SqlDocuments
from tidegate.systems.github import CONVERSATIONS, GithubSource
from tidegate.systems.github.statistics import Statistics

POOL = "pool"


class Secrets:
    def __init__(self, token: str) -> None:
        self._token = token

    async def secret_of(self, credential: str) -> str:
        return self._token


async def stop_here(run: Run) -> None:
    print(f"computed {run.login}", flush=True)
    await asyncio.Event().wait()


async def main(data_dir: Path, url: str, token: str, *, stops: bool) -> None:
    membership = MembershipSettings(lease=timedelta(seconds=2), renew_every=timedelta(seconds=1))
    async with open_context(Settings(data_dir=data_dir, membership=membership)) as parts, UpstreamClient() as client:
        documents = SqlDocuments(parts.database)

        async def register() -> None:
            await parts.gate.register("token", pool=POOL, limits=LIMITS)

        collector = Collector(
            CollectDependencies(parts.database, parts.gate, parts.jobs, parts.owner, documents),
            [GithubSource(url, CONVERSATIONS)],
            caller=client,
            secrets=Secrets(token),
            register_credentials=register,
            finalizers=[Statistics(parts.database, documents.of("github")).finalize, *([stop_here] if stops else [])],
        )
        process = build_process(
            parts,
            handlers=collector.handlers,
            services=collector.services,
            leader_services={"recovery": collector.recovery_service},
            on_death=[collector.recovery_service.notify],
        )
        await process.run(handle_signals=True)


if __name__ == "__main__":
    configure_logs(level="error")
    uvloop.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], stops=sys.argv[4] == "1"))
