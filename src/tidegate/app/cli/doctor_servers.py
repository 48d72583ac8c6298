"""Checks of the servers: versions, features, and advice on their configuration."""

from collections.abc import AsyncIterator
from datetime import timedelta

from tidegate.app.cli.findings import CheckResult, Finding, failure
from tidegate.connections import open_valkey
from tidegate.core.errors import TidegateError
from tidegate.engine.sqs.settings import AwsSettings
from tidegate.settings import Settings
from tidegate.storage.documents.opening import check_documents
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.migrate import pending_migrations
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots.settings import SnapshotSettings

_ERRORS = (TidegateError, OSError)
_UNTRIED_AFTER = timedelta(minutes=10)
"""Events younger than this may still be delivered."""


async def valkey(settings: Settings) -> AsyncIterator[Finding]:
    """Check the Valkey or Redis server."""
    name = "valkey (embedded)" if settings.valkey_url is None else "valkey"
    try:
        async with open_valkey(settings) as opened:
            yield Finding(name, CheckResult.OK, _describe(opened))
            for finding in _advice(name, opened):
                yield finding
    except _ERRORS as error:
        yield failure(name, error, _ask_about("TIDEGATE_VALKEY_URL", settings.valkey_url))


async def database(settings: Settings) -> AsyncIterator[Finding]:
    """Check the database and its schema."""
    name = "database (embedded)" if settings.database_url is None else "database"
    try:
        async with await Database.open(settings.effective_database_url) as opened:
            server = await opened.describe()
            abilities = ", ".join(sorted(server.capabilities))
            yield Finding(name, CheckResult.OK, f"{server.product} {server.version} at {opened.name}: {abilities}")
            missing = await pending_migrations(opened)
            if not missing:
                yield Finding(f"{name}: schema", CheckResult.OK, "up to date")
                for untried in await opened.read(_untried):
                    yield _not_handled(name, untried)
            elif settings.migrates_at_start:
                yield Finding(
                    f"{name}: schema", CheckResult.OK, f"{len(missing)} migration(s) will run at the next start"
                )
            else:
                remedy = "Run `tidegate migrate`"
                yield Finding(f"{name}: schema", CheckResult.FAILED, f"{len(missing)} migration(s) missing", remedy)
    except _ERRORS as error:
        yield failure(name, error, _ask_about("TIDEGATE_DATABASE_URL", settings.database_url))


async def documents(settings: Settings) -> AsyncIterator[Finding]:
    """Check the document store, if it is not the database."""
    if settings.documents.url is None:
        return
    try:
        name = await check_documents(settings.documents)
        yield Finding("documents", CheckResult.OK, f"MongoDB at {name}")
    except _ERRORS as error:
        yield failure("documents", error, _ask_about("TIDEGATE_DOCUMENTS__URL", settings.documents.url))


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
        yield failure("kafka", error, _ask_about("TIDEGATE_SNAPSHOTS__KAFKA__SERVERS", servers))


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


async def queues(settings: Settings) -> AsyncIterator[Finding]:
    """Check the SQS queues of the settings."""
    if settings.section(AwsSettings).trigger_queue_url is None and settings.section(AwsSettings).task_queue_url is None:
        return
    from tidegate.engine.sqs.opening import check_queues

    try:
        for url in await check_queues(settings.section(AwsSettings)):
            yield Finding("queue", CheckResult.OK, url)
    except _ERRORS as error:
        yield failure("queue", error, "Check the address of the queue and the AWS credentials")


def _untried(tx: Transaction) -> list[outbox.UntriedEvents]:
    return outbox.untried(tx, before=tx.now - _UNTRIED_AFTER)


def _not_handled(name: str, untried: outbox.UntriedEvents) -> Finding:
    """The finding about events that are pending because no running process has a handler for their kind."""
    since = f"{untried.oldest:%Y-%m-%d %H:%M} UTC"
    return Finding(
        f"{name}: events",
        CheckResult.ADVICE,
        f"{untried.events:,} event(s) of kind {untried.kind} pending since {since}: no process handles them",
        "Run a process with the system that handles this kind in the setting `systems`; by default all systems run",
    )


def _describe(opened: Valkey) -> str:
    info = opened.info
    reads = "blocking reads" if info.can_block else "no blocking reads"
    kind = "cluster, " if info.is_cluster else ""
    return f"{info.product} {info.version} at {opened.address}: {kind}{reads}"


def _advice(name: str, opened: Valkey) -> list[Finding]:
    found: list[Finding] = []
    if not opened.info.persists:
        remedy = "Set `appendonly yes`; without it, all state has to be rebuilt from SQL after a restart"
        found.append(Finding(f"{name}: persistence", CheckResult.ADVICE, "no append-only file", remedy))
    if opened.info.evicts:
        remedy = "Set `maxmemory-policy noeviction`: the eviction of single keys makes related keys inconsistent"
        found.append(Finding(f"{name}: memory", CheckResult.ADVICE, "may evict keys", remedy))
    if not opened.info.can_block:
        remedy = "Allow blocking commands: consumers then wait without polling"
        found.append(Finding(f"{name}: blocking", CheckResult.ADVICE, "blocking reads are forbidden", remedy))
    return found


def _ask_about(variable: str, url: str | None) -> str:
    """The first thing to check: the configured address, or the data folder of the embedded server."""
    if url is None:
        return "Check that the data folder is writable, or set another one in TIDEGATE_DATA_DIR"
    return f"Check that it is running, and that {variable} is correct"
