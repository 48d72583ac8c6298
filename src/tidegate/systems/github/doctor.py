"""Checks of `tidegate doctor` for GitHub: its credentials, and whether it accepts connections."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from tidegate.core.errors import TidegateError
from tidegate.core.findings import CheckResult, Finding
from tidegate.core.telemetry.redaction import redact_text
from tidegate.engine.doctor import reach, stored_credentials
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.settings import Settings
from tidegate.systems.github.settings import HOW_TO_GET_ONE, VARIABLE, GithubSettings


async def credentials(settings: Settings) -> AsyncIterator[Finding]:
    """Check that there is a credential for GitHub: a stored one, or the token of the environment."""
    from tidegate.engine.credentials import CredentialState

    known, audience = await stored_credentials(settings), settings.section(GithubSettings).api_url
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


async def upstream(settings: Settings) -> AsyncIterator[Finding]:
    """Check that GitHub accepts connections, if a credential for it is known. No quota is used: no request is sent."""
    url = settings.section(GithubSettings).api_url
    known = (await stored_credentials(settings)).credentials
    if os.environ.get(VARIABLE) or any(one.credential.audience == url for one in known):
        yield await reach("github", url)


async def _check_token(settings: Settings, token: str) -> Finding:
    """Check the token of the environment at GitHub, without spending quota."""
    from tidegate.engine.credentials import SecretRefused, SecretUncheckable
    from tidegate.engine.upstream import UpstreamClient, UpstreamFailed
    from tidegate.systems.github.authority import GithubAuthority

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
