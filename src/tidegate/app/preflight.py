"""What is checked before the schema is changed: a start that must fail should fail before the migration.

A migration cannot be undone, and processes of the previous version cannot use the new schema. So a setting that cannot
be used, a key that cannot be read or a server that is away is reported first. Ports are bound even before that.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

from tidegate.app.crawl import crawl_sites
from tidegate.app.kinds import by_name, configured_kinds
from tidegate.app.settings import Settings
from tidegate.app.vault import key_source
from tidegate.core.errors import InvalidSettings, TidegateError
from tidegate.core.telemetry.redaction import redact_text
from tidegate.engine.credentials import NotNow, SecretRefused
from tidegate.engine.credentials.borrowing import VARIABLE
from tidegate.engine.credentials.checks import require_token
from tidegate.engine.sqs.opening import require_library
from tidegate.engine.upstream import UpstreamClient, UpstreamFailed
from tidegate.storage.documents.opening import check_documents
from tidegate.systems.github.authority import GithubAuthority
from tidegate.systems.snapshots.transport.kafka.opening import open_kafka


async def check_before_migration(settings: Settings, token: str | None = None) -> None:
    """Raise `InvalidSettings` that names everything that would keep a process from starting, or return.

    `token` is the one of the environment. An upstream that is away does not keep a process from starting.
    """
    mistakes = [redact_text(mistake) async for mistake in _mistakes(settings, token)]
    if len(mistakes) == 1:
        raise InvalidSettings(f"{mistakes[0]}. The database was not migrated")
    if mistakes:
        raise InvalidSettings("\n  ".join([f"{len(mistakes)} mistakes; the database was not migrated:", *mistakes]))


async def _mistakes(settings: Settings, token: str | None) -> AsyncIterator[str]:
    async def check_token() -> None:
        if token:
            await _require_accepted(settings, require_token(token))

    async def check_transport() -> None:
        if settings.snapshots.uses_kafka:
            await open_kafka(settings.snapshots.kafka).close()

    checks: list[Callable[[], object]] = [
        lambda: crawl_sites(settings),
        lambda: by_name(configured_kinds(settings)),
        lambda: key_source(settings).read(),
        lambda: require_library(settings.aws),
        lambda: check_documents(settings.documents),
        check_transport,
        check_token,
    ]
    for check in checks:
        try:
            pending = check()
            if isinstance(pending, Awaitable):
                await pending
        except TidegateError as error:
            yield str(error).rstrip(".")


async def _require_accepted(settings: Settings, token: str) -> None:
    async with UpstreamClient(settings.upstream) as client:
        try:
            await GithubAuthority(client, settings.github.api_url).check(token, identify=False)
        except SecretRefused as refused:
            raise InvalidSettings(
                f"{VARIABLE} cannot be used: {settings.github.api_url} says {refused.reason}"
            ) from None
        except (UpstreamFailed, NotNow):  # it may come back: the process starts, or says so itself
            return
