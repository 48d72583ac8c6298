"""One process whose jobs go through SQS: `-m tests.engine.sqs.process DATA_DIR UPSTREAM LEASE_MS ENDPOINT QUEUE ROLE`.

Its test kills it. ROLE is `works`, or `forwards` for one without workers.
"""

import sys
from datetime import timedelta
from pathlib import Path

import uvloop

from tests.engine.conftest import LIMITS, POOL
from tests.engine.process import Ready, RemoteShelfSource, Secrets
from tests.servers.moto import REGION
from tidegate.connections import open_context
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine.source_cell import CollectDependencies, Collector
from tidegate.engine.sqs.opening import open_aws
from tidegate.engine.sqs.settings import AwsSettings
from tidegate.engine.upstream import UpstreamClient
from tidegate.primitives.membership import MembershipSettings
from tidegate.primitives.stream import TicketedStream
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.storage.documents import SqlDocuments


async def main(data_dir: Path, upstream: str, lease: timedelta, endpoint: str, queue: str, role: str) -> None:
    settings = Settings(
        data_dir=data_dir,
        membership=MembershipSettings(lease=lease, renew_every=lease * 0.7),
        # What comes after its death may be given to it all the same, since it was waiting, and is hidden for so long.
        aws=AwsSettings(
            region=REGION, endpoint_url=endpoint, task_queue_url=queue, visibility_timeout=timedelta(seconds=1)
        ),
    )
    async with (
        open_context(settings) as parts,
        UpstreamClient() as client,
        open_aws(settings.section(AwsSettings), TicketedStream(parts.valkey, parts.jobs), parts.owner) as aws,
    ):

        async def register() -> None:
            await parts.gate.register("librarian", pool=POOL, limits=LIMITS)

        collector = Collector(
            CollectDependencies(parts.database, parts.gate, parts.jobs, parts.owner, SqlDocuments(parts.database)),
            [RemoteShelfSource(upstream)],
            caller=client,
            secrets=Secrets(),
            register_credentials=register,
            intake=aws.intake,
        )
        process = build_process(
            parts,
            handlers=collector.handlers,
            services={**(collector.services if role == "works" else {}), **aws.services, "ready": Ready()},
            sources=aws.sources,
            leader_services={"recovery": collector.recovery_service},
            on_death=[collector.recovery_service.notify],
        )
        await process.run(handle_signals=True)


if __name__ == "__main__":
    configure_logs(level="error")
    lease_s = timedelta(milliseconds=int(sys.argv[3]))
    uvloop.run(main(Path(sys.argv[1]), sys.argv[2], lease_s, sys.argv[4], sys.argv[5], sys.argv[6]))
