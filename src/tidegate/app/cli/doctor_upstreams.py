"""Checks of the upstreams: credentials and network connections."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from tidegate.app.cli.findings import CheckResult, Finding
from tidegate.core.errors import TidegateError
from tidegate.core.telemetry.redaction import redact_text
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.sql.migrate import pending_migrations
from tidegate.systems import crawl
from tidegate.systems.github.settings import GithubSettings
from tidegate.systems.snapshots.settings import SnapshotSettings

if TYPE_CHECKING:
    from tidegate.engine.credentials.records import Stored

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
