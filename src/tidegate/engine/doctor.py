"""Checks of `tidegate doctor` for sources: queues, stored credentials, and whether an upstream accepts connections."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from tidegate.core.errors import TidegateError
from tidegate.core.findings import CheckResult, Finding, failure
from tidegate.core.telemetry.redaction import redact_text
from tidegate.engine.sqs.settings import AwsSettings
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.sql.migrate import pending_migrations

if TYPE_CHECKING:
    from tidegate.engine.credentials.records import Stored

_CONNECT_WITHIN_S = 5.0


async def queues(settings: Settings) -> AsyncIterator[Finding]:
    """Check the SQS queues of the settings."""
    ours = settings.section(AwsSettings)
    if ours.trigger_queue_url is None and ours.task_queue_url is None:
        return
    from tidegate.engine.sqs.opening import check_queues

    try:
        for url in await check_queues(ours):
            yield Finding("queue", CheckResult.OK, url)
    except (TidegateError, OSError) as error:
        yield failure("queue", error, "Check the address of the queue and the AWS credentials")


class StoredCredentials(msgspec.Struct, frozen=True):
    """Stored credentials of all sources; empty if they cannot be read, which another check reports."""

    credentials: list[Stored] = []
    fault: str | None = None
    """The error about a stored secret that cannot be decrypted."""


async def stored_credentials(settings: Settings) -> StoredCredentials:
    """Read stored credentials, and check that their secrets can be decrypted."""
    from tidegate.engine.credentials import records
    from tidegate.engine.credentials.opening import open_vault

    try:
        async with await Database.open(settings.effective_database_url) as database:
            # The table may not exist yet; another check reports that.
            if await pending_migrations(database):
                return StoredCredentials()
            stored = list(await database.read(records.everything))
            vault, fault = open_vault(settings, database), None
            for one in stored:
                if one.sealed is not None:
                    try:
                        await vault.open(one.label, one.sealed)
                    except TidegateError as error:
                        fault = fault or redact_text(str(error))
    except (TidegateError, OSError):
        return StoredCredentials()
    return StoredCredentials(stored, fault)


async def reach(name: str, url: str) -> Finding:
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
