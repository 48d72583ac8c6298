"""One worker process of the scaling curve: a member of the cell of each shard.

A source has a gate, a job stream and a leader of its own (`engine/cells.py`), so the sources are the shards. The
process prints a line when it is ready, and then the name of a source for each end of a run that it handles.
"""

import asyncio
import json
import signal
import sys
from pathlib import Path

import msgspec
import uvloop

from bench.engine import LIMITS, NoNetwork
from tidegate.connections import open_context
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine.cells import cell_context
from tidegate.engine.runs import Run
from tidegate.engine.source_cell import CollectDependencies, Collector
from tidegate.process import build_process
from tidegate.runtime.supervisor import Supervisor
from tidegate.settings import Settings
from tidegate.storage.documents import SqlDocuments
from tidegate.system import Context


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What is done in one point of the curve, the same in all processes."""

    shards: tuple[str, ...]
    """Names of the sources."""
    runs: int
    """Of each shard."""
    lists: int
    jobs: int
    """Of each run, without its lists."""
    documents: int = 0
    """Of each of these jobs."""

    def source(self, name: str) -> NoNetwork:
        """The source of a shard."""
        return NoNetwork(self.jobs, lists=self.lists, name=name, documents=self.documents)

    @property
    def total_runs(self) -> int:
        """The runs of all shards."""
        return self.runs * len(self.shards)

    @property
    def total_jobs(self) -> int:
        """The jobs of all runs."""
        return self.total_runs * self.source(self.shards[0]).total


def collector_of(parts: Context, source: NoNetwork) -> Collector:
    """The collector of one shard in this process."""
    dependencies = CollectDependencies(
        parts.database, parts.gate, parts.jobs, parts.owner, SqlDocuments(parts.database)
    )

    async def register() -> None:
        await parts.gate.register(f"token-{source.name}", pool=source.name, limits=LIMITS)

    async def report_end(run: Run) -> None:
        if (run.succeeded_jobs, run.total_jobs) != (source.total, source.total):
            raise RuntimeError(f"a run ended with unfinished jobs: {run}")
        print(source.name, flush=True)

    return Collector(
        dependencies, [source], caller=source, secrets=source, register_credentials=register, finalizers=[report_end]
    )


def _member(context: Context, source: NoNetwork) -> Supervisor:
    parts = cell_context(context, source.name)
    collector = collector_of(parts, source)
    return build_process(
        parts,
        handlers=collector.handlers,
        services=collector.services,
        leader_services={"recovery": collector.recovery_service},
    )


async def _main(load: Load, data_dir: str, valkey_url: str, database_url: str) -> None:
    settings = Settings(data_dir=Path(data_dir), valkey_url=valkey_url, database_url=database_url)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with open_context(settings) as context:
        members = [_member(context, load.source(name)) for name in load.shards]
        running = [asyncio.create_task(member.run()) for member in members]
        print(json.dumps({"ready": True}), flush=True)
        await stopping.wait()
        for member in members:
            member.stop()
        await asyncio.gather(*running)


if __name__ == "__main__":
    configure_logs(level="warning")
    uvloop.run(_main(msgspec.json.decode(sys.argv[1], type=Load), *sys.argv[2:]))
