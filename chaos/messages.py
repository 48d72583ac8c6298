"""Messages between a campaign, the fork server and its workers."""

from datetime import timedelta
from typing import Any

import msgspec

from tidegate.core.telemetry.logs import LogLevel
from tidegate.engine.settings import CollectSettings
from tidegate.settings import Settings


class WorkerEnded(msgspec.Struct, frozen=True, tag=True):
    """A worker has ended."""

    worker: int
    exit_code: int
    """Below zero: the signal that killed it."""


class WorkerStarted(msgspec.Struct, frozen=True, tag=True):
    """A worker has begun."""

    worker: int
    pid: int


class WorkerReport(msgspec.Struct, frozen=True, tag=True):
    """A worker reports its state."""

    worker: int
    text: str


Event = WorkerStarted | WorkerEnded | WorkerReport


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a worker has to know."""

    number: int = 0
    """Given by the fork server client."""
    settings: dict[str, Any]
    """As arguments of `Settings`."""
    die_at: str = ""
    """A point of `chaos.crash_points` and which time, as `settle.before:2`."""
    begin: str = ""
    """A user whose run this process is to begin, before it does anything else."""
    first_pause_ms: int | None = None
    """The pause before the first retry of a call or a write, and before the first check of an enqueue intent."""
    drain_s: float | None = None
    """How long it may take to stop, instead of the usual 30 s."""
    log_level: LogLevel = "error"

    @property
    def effective_settings(self) -> Settings:
        """The settings themselves."""
        settings = Settings(**self.settings)
        if self.first_pause_ms is None:
            return settings
        quick = {"first_pause": timedelta(milliseconds=self.first_pause_ms)}
        return settings.model_copy(update={"collect": settings.section(CollectSettings).model_copy(update=quick)})
