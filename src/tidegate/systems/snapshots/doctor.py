"""Checks of `tidegate doctor` for snapshots: Kafka, the archive, and the upstream of the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tidegate.core.errors import TidegateError
from tidegate.core.findings import CheckResult, Finding, ask_about, failure
from tidegate.engine.doctor import reach
from tidegate.settings import Settings
from tidegate.systems.snapshots.settings import SnapshotSettings

_ERRORS = (TidegateError, OSError)


async def kafka(settings: Settings) -> AsyncIterator[Finding]:
    """Check Kafka and its topics, if it is the transport."""
    if not settings.section(SnapshotSettings).uses_kafka:
        return
    from tidegate.systems.snapshots.transports.opening import open_kafka

    servers = settings.section(SnapshotSettings).kafka.servers
    try:
        transport = open_kafka(settings.section(SnapshotSettings).kafka)
        try:
            topics = await transport.topics()
        finally:
            await transport.close()
        yield Finding("kafka", CheckResult.OK, f"{servers}: {len(topics)} topics")
    except _ERRORS as error:
        yield failure("kafka", error, ask_about("TIDEGATE_SNAPSHOTS__KAFKA__SERVERS", servers))


async def archive(settings: Settings) -> AsyncIterator[Finding]:
    """Check the lifecycle rule of an archive on S3."""
    url = settings.section(SnapshotSettings).archive.url
    if url is None or not url.startswith("s3:"):
        return
    from tidegate.systems.snapshots.archive.opening import require_packages

    try:
        require_packages()
        from tidegate.systems.snapshots.archive.lifecycle import S3Lifecycle

        if await S3Lifecycle(url, settings.section(SnapshotSettings).archive).check():
            yield Finding("archive", CheckResult.OK, "the lifecycle rule of the bucket is correct")
        else:
            remedy = "The leader sets it after the first archive file; if it cannot, its log has the reason"
            yield Finding("archive", CheckResult.ADVICE, "the bucket lacks the lifecycle rule of the archive", remedy)
    except _ERRORS as error:
        yield failure("archive", error, "Check that this user may read the lifecycle configuration of the bucket")


async def upstream(settings: Settings) -> AsyncIterator[Finding]:
    """Check that the game API accepts connections, if one is configured. No request is sent, so no quota is used."""
    url = settings.section(SnapshotSettings).game.url
    if url is not None:
        yield await reach("snapshots: character", url)
