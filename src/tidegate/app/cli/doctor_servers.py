"""Checks of the servers and upstreams: versions, features, configuration, credentials and network connections."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from tidegate.app.cli.findings import CheckResult, Finding, failure
from tidegate.connections import open_valkey
from tidegate.core.errors import TidegateError
from tidegate.core.telemetry.redaction import redact_text
from tidegate.engine.sqs.settings import AwsSettings
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.settings import Settings
from tidegate.storage.documents.sql import check_documents
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.migrate import pending_migrations
from tidegate.storage.valkey import Valkey
from tidegate.systems import crawl
from tidegate.systems.github.settings import GithubSettings
from tidegate.systems.snapshots.settings import SnapshotSettings

if TYPE_CHECKING:
    from tidegate.engine.credentials.records import Stored

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


_CONNECT_WITHIN_S = 5.0
_MOST_SCHEDULES = 500
_MOST_HOSTS = 20


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """Data about upstreams in the database; empty if it cannot be read, which another check reports."""

    credentials: list[Stored] = []
    crawled: list[str] = []
    """Addresses of hosts with scheduled crawls."""
    fault: str | None = None
    """The error about a stored secret that cannot be decrypted."""


async def credentials(settings: Settings) -> AsyncIterator[Finding]:
    """Check that there is a credential for GitHub: a stored one, or the token of the environment."""
    from tidegate.engine.credentials import CredentialState
    from tidegate.systems.github.settings import HOW_TO_GET_ONE, VARIABLE

    known, audience = await _known(settings), settings.section(GithubSettings).api_url
    ours = [one.credential for one in known.credentials if one.credential.audience == audience and one.sealed]
    valid = [one.name for one in ours if one.state is CredentialState.VALID]
    refused = [one.name for one in ours if one.state is not CredentialState.VALID]
    if known.fault is not None:
        yield Finding("credentials", CheckResult.FAILED, known.fault)
    elif valid:
        yield Finding("credentials", CheckResult.OK, f"{len(valid)} stored for {audience}: {', '.join(valid[:5])}")
    if refused:
        remedy = "Run `tidegate credentials test NAME`, or store a new token under the same name"
        yield Finding("credentials", CheckResult.FAILED, f"refused by {audience}: {', '.join(refused[:5])}", remedy)
    token = os.environ.get(VARIABLE)
    if not valid and token:
        yield await _check_token(settings, token)
    elif not ours:
        yield Finding("credentials", CheckResult.ADVICE, f"none for {audience}", f"To collect, {HOW_TO_GET_ONE}")


async def upstreams(settings: Settings) -> AsyncIterator[Finding]:
    """Check that each upstream accepts connections. No request is sent, so no quota is used."""
    from tidegate.systems.github.settings import VARIABLE

    known, urls = await _known(settings), dict[str, str]()
    if known.credentials or os.environ.get(VARIABLE):
        urls[settings.section(GithubSettings).api_url] = "github"
    game = settings.section(SnapshotSettings).game
    if game.url is not None:
        urls[game.url] = "snapshots: character"
    urls |= dict.fromkeys(known.crawled[:_MOST_HOSTS], "crawl")
    for finding in await asyncio.gather(*(_reach(name, url) for url, name in urls.items())):
        yield finding


async def _known(settings: Settings) -> _Known:
    """Read stored credentials and crawled addresses, and check that secrets can be decrypted.

    Returns nothing known if the database cannot be read or is not migrated.
    """
    from tidegate.engine.credentials import records
    from tidegate.engine.credentials.opening import open_vault
    from tidegate.engine.schedules.store import listed

    try:
        async with await Database.open(settings.effective_database_url) as database:
            # The tables below may not exist yet; another check reports that.
            if await pending_migrations(database):
                return _Known()
            stored = list(await database.read(records.everything))
            schedules = await database.read(listed, None, 0, _MOST_SCHEDULES, crawl.SOURCE)
            vault, fault = open_vault(settings, database), None
            for one in stored:
                if one.sealed is not None:
                    try:
                        await vault.open(one.label, one.sealed)
                    except TidegateError as error:
                        fault = fault or redact_text(str(error))
    except (TidegateError, OSError):
        return _Known()
    crawled = dict.fromkeys(str(each.options["url"]) for each in schedules if each.next_at is not None)
    return _Known(credentials=stored, crawled=list(crawled), fault=fault)


async def _check_token(settings: Settings, token: str) -> Finding:
    """Check the token of the environment at GitHub, without spending quota."""
    from tidegate.engine.credentials import SecretRefused, SecretUncheckable
    from tidegate.engine.upstream import UpstreamClient, UpstreamFailed
    from tidegate.systems.github.authority import GithubAuthority
    from tidegate.systems.github.settings import VARIABLE

    try:
        async with UpstreamClient(settings.section(UpstreamSettings)) as client:
            checked = await GithubAuthority(client, settings.section(GithubSettings).api_url).check(
                token, identify=False
            )
    except SecretRefused as refused:
        found = f"{VARIABLE} is refused by {settings.section(GithubSettings).api_url}: {redact_text(refused.reason)}"
        return Finding("credentials", CheckResult.FAILED, found, "Create a new token, or correct the variable")
    except (UpstreamFailed, SecretUncheckable) as error:
        found = f"{VARIABLE} is set, but cannot be checked now: {redact_text(str(error))}"
        return Finding("credentials", CheckResult.ADVICE, found)
    except TidegateError as error:  # the value is not a token
        return Finding("credentials", CheckResult.FAILED, f"{VARIABLE}: {redact_text(str(error))}")
    core = checked.left.get("core")
    left = "" if core is None else f": {core.remaining:,} of {core.limit:,} calls left"
    return Finding("credentials", CheckResult.OK, f"{VARIABLE} is valid{left}")


async def _reach(name: str, url: str) -> Finding:
    """Check that the host of a URL accepts connections; no request is sent."""
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    check, place = f"upstream: {name}", f"{parts.scheme}://{parts.netloc}"
    try:
        async with asyncio.timeout(_CONNECT_WITHIN_S):
            _, writer = await asyncio.open_connection(
                parts.hostname,
                parts.port or (443 if is_tls else 80),
                ssl=ssl.create_default_context() if is_tls else None,
            )
            # The connection is enough, with TLS if the address has it. A request could cost quota.
            writer.close()
    except TimeoutError:
        reason = f"no connection within {_CONNECT_WITHIN_S:.0f} s"
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None)  # the message contains the address with asyncio, but not with uvloop
        reason = os.strerror(number) if isinstance(number, int) and number > 0 else str(error)
    else:
        return Finding(check, CheckResult.OK, f"{place} accepts connections")
    remedy = "Check the address and the network connection"
    return Finding(check, CheckResult.FAILED, f"{place} cannot be reached: {reason}", remedy)
