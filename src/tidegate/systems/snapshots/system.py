"""Declares the system `snapshots` to the application."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tidegate.system import Command, Context, OpenSystem, System

if TYPE_CHECKING:
    from tidegate.core.findings import Finding
    from tidegate.settings import Settings


class SnapshotSystem(System):
    """Stored copies of objects of a rate-limited API: read at once, refreshed in the background."""

    name = "snapshots"
    sections = {"snapshots": "tidegate.systems.snapshots.settings:SnapshotSettings"}
    metrics = "tidegate.systems.snapshots.metrics"
    commands = {
        "snapshots": Command(
            "tidegate.systems.snapshots.commands.snapshots:app",
            "Read and refresh snapshots, and see what failed.",
        )
    }
    kept_tables = {
        "snapshot_archives": "one row for each file of the archive",
        "snapshot_history": "moved to the archive (`snapshots.archive`)",
        "snapshot_status": "one row for each subject with a failed refresh; deleted by a success",
        "snapshots": "one row for each subject",
    }

    def checks(self, settings: "Settings") -> Sequence[Callable[[], object]]:
        """Checks of the configured kinds and of the transport."""
        from tidegate.systems.snapshots.kinds import by_name, configured_kinds
        from tidegate.systems.snapshots.settings import SnapshotSettings
        from tidegate.systems.snapshots.transports.opening import open_kafka

        ours = settings.section(SnapshotSettings)

        async def check_transport() -> None:
            if ours.uses_kafka:
                await open_kafka(ours.kafka).close()

        return [lambda: by_name(configured_kinds(settings)), check_transport]

    def doctor_checks(self) -> "Mapping[str, Callable[[Settings], AsyncIterator[Finding]]]":
        """Checks of Kafka, the archive and the upstream."""
        from tidegate.systems.snapshots import doctor

        return {"kafka": doctor.kafka, "archive": doctor.archive, "snapshots": doctor.upstream}

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """Open snapshots for the length of a block."""
        from tidegate.systems.snapshots.kinds import configured_kinds
        from tidegate.systems.snapshots.service import OpenSnapshots, open_snapshots

        if not configured_kinds(context.settings):
            yield OpenSnapshots(context, None)
            return
        async with open_snapshots(context) as snapshots:
            context.share(snapshots)
            yield OpenSnapshots(context, snapshots)
