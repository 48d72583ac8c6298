"""Tidegate coordinates work around rate limits and capacity limits.

    import tidegate

    async with tidegate.open(tidegate.Settings.load()) as application:
        await application.process().run(handle_signals=True)

The names listed in `__all__` are the public API. Modules are imported when one of their names is first used.
"""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.app.application import Application, open  # noqa: A004 - `tidegate.open(...)`
    from tidegate.app.sync_limiter import SyncLimiter
    from tidegate.connections import open_context, open_database, open_valkey
    from tidegate.core.errors import (
        CircuitOpen,
        CommitUnknown,
        Conflict,
        DatabaseUnavailable,
        GrantVoid,
        InvalidArgument,
        InvalidSettings,
        NoCredential,
        NotFound,
        ServerRefused,
        TidegateError,
        TooManyWaiting,
        Unavailable,
        ValkeyUnavailable,
    )
    from tidegate.core.priority import Priority
    from tidegate.core.telemetry.logs import configure_logs
    from tidegate.engine.collection import Collection
    from tidegate.engine.source import Cursor, JobSpec, Reading, Source, Subject, Task
    from tidegate.engine.upstream import Answer, Request
    from tidegate.primitives.circuit_breaker import CircuitBreaker
    from tidegate.primitives.coalescer import Coalescer
    from tidegate.primitives.gate import Gate
    from tidegate.primitives.limiter import Grant, Limit, Limiter, LimiterSettings, Rate
    from tidegate.primitives.stream import Stream
    from tidegate.primitives.timers import Timers
    from tidegate.runtime.delivery import Handler
    from tidegate.runtime.service import Service
    from tidegate.settings import Settings
    from tidegate.storage.sql import Database, Transaction, outbox
    from tidegate.storage.sql.outbox import Event
    from tidegate.storage.valkey import Valkey
    from tidegate.system import Api, Command, Context, OpenSystem, System, Topic
    from tidegate.systems.campaigns.service import Campaigns
    from tidegate.systems.ranking.service import Ranking
    from tidegate.systems.snapshots.model import SnapshotKind
    from tidegate.systems.snapshots.service import Snapshots
    from tidegate.systems.waiting_room import WaitingRoom

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Api",
    "Application",
    "Campaigns",
    "CircuitBreaker",
    "CircuitOpen",
    "Coalescer",
    "Collection",
    "Command",
    "CommitUnknown",
    "Conflict",
    "Context",
    "Cursor",
    "Database",
    "DatabaseUnavailable",
    "Event",
    "Gate",
    "Grant",
    "GrantVoid",
    "Handler",
    "InvalidArgument",
    "InvalidSettings",
    "JobSpec",
    "Limit",
    "Limiter",
    "LimiterSettings",
    "NoCredential",
    "NotFound",
    "OpenSystem",
    "Priority",
    "Ranking",
    "Rate",
    "Reading",
    "Request",
    "ServerRefused",
    "Service",
    "Settings",
    "SnapshotKind",
    "Snapshots",
    "Source",
    "Stream",
    "Subject",
    "SyncLimiter",
    "System",
    "Task",
    "TidegateError",
    "Timers",
    "TooManyWaiting",
    "Topic",
    "Transaction",
    "Unavailable",
    "Valkey",
    "ValkeyUnavailable",
    "WaitingRoom",
    "configure_logs",
    "open",
    "open_context",
    "open_database",
    "open_valkey",
    "outbox",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.app.application": "Application open",
        "tidegate.app.sync_limiter": "SyncLimiter",
        "tidegate.connections": "open_context open_database open_valkey",
        "tidegate.core.errors": (
            "CircuitOpen CommitUnknown Conflict DatabaseUnavailable GrantVoid InvalidArgument InvalidSettings "
            "NoCredential NotFound ServerRefused TidegateError TooManyWaiting Unavailable ValkeyUnavailable"
        ),
        "tidegate.core.priority": "Priority",
        "tidegate.core.telemetry.logs": "configure_logs",
        "tidegate.engine.collection": "Collection",
        "tidegate.engine.source": "Cursor JobSpec Reading Source Subject Task",
        "tidegate.engine.upstream": "Answer Request",
        "tidegate.primitives.circuit_breaker": "CircuitBreaker",
        "tidegate.primitives.coalescer": "Coalescer",
        "tidegate.primitives.gate": "Gate",
        "tidegate.primitives.limiter": "Grant Limit Limiter LimiterSettings Rate",
        "tidegate.primitives.stream": "Stream",
        "tidegate.primitives.timers": "Timers",
        "tidegate.runtime.delivery": "Handler",
        "tidegate.runtime.service": "Service",
        "tidegate.settings": "Settings",
        "tidegate.storage.sql": "Database Transaction",
        "tidegate.storage.sql.outbox": "Event outbox",
        "tidegate.storage.valkey": "Valkey",
        "tidegate.system": "Api Command Context OpenSystem System Topic",
        "tidegate.systems.campaigns.service": "Campaigns",
        "tidegate.systems.ranking.service": "Ranking",
        "tidegate.systems.snapshots.service": "Snapshots",
        "tidegate.systems.snapshots.model": "SnapshotKind",
        "tidegate.systems.waiting_room": "WaitingRoom",
    },
)
