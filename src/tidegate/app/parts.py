"""One process's hold on the deployment: its connections, and the primitives that stand on them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tidegate.app.connections import Preflight, open_database, open_valkey
from tidegate.app.settings import Settings
from tidegate.core.ids import new_owner
from tidegate.primitives.gate import Gate
from tidegate.primitives.membership import Presence
from tidegate.primitives.stream import Stream
from tidegate.primitives.timers import Timers
from tidegate.primitives.wakeup import Doorbell
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Unit, Valkey

_SHARD = "shard-0"
_NEVER_BURIED = 1_000_000
"""The worker decides when a job has killed too many of its kind: its permit and its row end with it."""


@dataclass(frozen=True)
class Parts:
    """One process's hold on the deployment: its connections, and the primitives that stand on them."""

    settings: Settings
    owner: str
    """This process's name among all processes of the deployment."""
    valkey: Valkey
    database: Database
    unit: Unit
    presence: Presence
    jobs: Stream
    """Jobs that have their permit."""
    gate: Gate
    alarms: Stream
    """Timers that have come due."""
    timers: Timers

    @property
    def commits(self) -> Doorbell:
        """Where the leader hears that somebody committed events."""
        return Doorbell(self.valkey, self.unit.key("commits"))


@asynccontextmanager
async def open_parts(settings: Settings, *, before_migration: Preflight | None = None) -> AsyncGenerator[Parts]:
    """Everything a process of the deployment needs, for the length of a block. See `open_database`."""
    async with (
        open_valkey(settings) as valkey,
        open_database(settings, before_migration=before_migration) as database,
    ):
        yield put_together(settings, valkey, database)


def put_together(settings: Settings, valkey: Valkey, database: Database) -> Parts:
    """The primitives, on connections that are open."""
    unit, owner = valkey.unit(_SHARD), new_owner()
    presence = Presence(valkey, unit, owner, settings=settings.presence)
    jobs = Stream(valkey, unit, "jobs", settings.stream.model_copy(update={"max_deliveries": _NEVER_BURIED}))
    alarms = Stream(valkey, unit, "alarms", settings.stream)
    timers = Timers(valkey, unit, alarms.keys.stream, settings=settings.timers)
    gate = Gate(
        valkey,
        unit,
        stream=jobs.keys.stream,
        group=jobs.settings.group,
        wake=timers.keys.wake,
        settings=settings.gate,
    )
    return Parts(settings, owner, valkey, database, unit, presence, jobs, gate, alarms, timers)
