"""Checks before the schema is changed: a start that must fail should fail before the migration.

A migration cannot be undone, and processes of the previous version cannot use the new schema. So a setting that cannot
be used, a key that cannot be read or a server that is unavailable is reported first. Ports are bound before that.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from tidegate.core.errors import InvalidSettings, TidegateError
from tidegate.core.telemetry.redaction import redact_text
from tidegate.engine.credentials.opening import key_source
from tidegate.settings import Settings
from tidegate.storage.documents.sql import check_documents
from tidegate.system import System

Check = Callable[[], object]


async def check_before_migration(settings: Settings, systems: Sequence[System], further: Sequence[Check] = ()) -> None:
    """Raise `InvalidSettings` with all errors that would keep a process from starting.

    `further` contains checks in addition to those of the systems.
    """
    mistakes = [redact_text(mistake) async for mistake in _mistakes(settings, systems, further)]
    if len(mistakes) == 1:
        raise InvalidSettings(f"{mistakes[0]}. The database was not migrated")
    if mistakes:
        raise InvalidSettings("\n  ".join([f"{len(mistakes)} errors; the database was not migrated:", *mistakes]))


async def _mistakes(settings: Settings, systems: Sequence[System], further: Sequence[Check]) -> AsyncIterator[str]:
    checks: list[Check] = [
        *(check for system in systems for check in system.checks(settings)),
        lambda: key_source(settings).read(),
        lambda: check_documents(settings.documents),
        *further,
    ]
    for check in checks:
        try:
            pending = check()
            if isinstance(pending, Awaitable):
                await pending
        except TidegateError as error:
            yield str(error).rstrip(".")
