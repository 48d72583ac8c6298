"""Checks the token of the environment before a process starts."""

from tidegate.core.errors import InvalidSettings
from tidegate.engine.credentials import NotNow, SecretRefused
from tidegate.engine.credentials.checks import require_token
from tidegate.engine.upstream import UpstreamClient, UpstreamFailed
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.settings import Settings
from tidegate.systems.github.authority import GithubAuthority
from tidegate.systems.github.settings import VARIABLE, GithubSettings


async def check_token(settings: Settings, token: str | None) -> None:
    """Raise `InvalidSettings` where GitHub refuses a token. One that cannot be checked now may be used later."""
    if not token:
        return
    token = require_token(token)
    async with UpstreamClient(settings.section(UpstreamSettings)) as client:
        try:
            await GithubAuthority(client, settings.section(GithubSettings).api_url).check(token, identify=False)
        except SecretRefused as refused:
            raise InvalidSettings(
                f"{VARIABLE} cannot be used: {settings.section(GithubSettings).api_url} says {refused.reason}"
            ) from None
        except (UpstreamFailed, NotNow):  # it may come back: the process starts, or says so itself
            return
