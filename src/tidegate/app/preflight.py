"""What is checked before the schema is changed: a start that must fail should fail before the migration.

A migration cannot be undone, and processes of the previous version cannot use the new schema. So a setting that cannot
be used, a key that cannot be read or a server that is away is reported first. Ports are bound even before that.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from tidegate.core.errors import InvalidSettings, TidegateError
from tidegate.core.telemetry.redaction import redact_text
from tidegate.engine.credentials import NotNow, SecretRefused
from tidegate.engine.credentials.borrowing import VARIABLE
from tidegate.engine.credentials.checks import require_token
from tidegate.engine.credentials.opening import key_source
from tidegate.engine.upstream import UpstreamClient, UpstreamFailed
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.settings import Settings
from tidegate.storage.documents.opening import check_documents
from tidegate.system import System
from tidegate.systems.github.authority import GithubAuthority
from tidegate.systems.github.settings import GithubSettings


async def check_before_migration(settings: Settings, systems: Sequence[System], token: str | None = None) -> None:
    """Raise `InvalidSettings` that names everything that would keep a process from starting, or return.

    `token` is the one of the environment. An upstream that is away does not keep a process from starting.
    """
    mistakes = [redact_text(mistake) async for mistake in _mistakes(settings, systems, token)]
    if len(mistakes) == 1:
        raise InvalidSettings(f"{mistakes[0]}. The database was not migrated")
    if mistakes:
        raise InvalidSettings("\n  ".join([f"{len(mistakes)} mistakes; the database was not migrated:", *mistakes]))


async def _mistakes(settings: Settings, systems: Sequence[System], token: str | None) -> AsyncIterator[str]:
    checks: list[Callable[[], object]] = [
        lambda: key_source(settings).read(),
        lambda: check_documents(settings.documents),
        *(check for system in systems for check in system.checks(settings)),
        lambda: check_token(settings, token),
    ]
    for check in checks:
        try:
            pending = check()
            if isinstance(pending, Awaitable):
                await pending
        except TidegateError as error:
            yield str(error).rstrip(".")


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
