"""What every command does first: read the settings, set up the log, run an event loop."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterable
from io import StringIO
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

if TYPE_CHECKING:
    from tidegate.core.telemetry.logs import LogSettings
    from tidegate.settings import Settings

T = TypeVar("T")

_EXPECTED = ("worker.died", "worker.lease_ended", "worker.unregistered", "stream.taken_over")
"""Log events that short commands suppress, since the user knows that an earlier process was interrupted."""


def load_settings() -> Settings:
    """The settings of this installation. A command that is soon over logs nothing below a warning."""
    from tidegate.settings import Settings

    settings = Settings.load()
    configure_log(settings.log)
    return settings


def configure_log(log: LogSettings, *, stream: TextIO | None = None, told: Iterable[str] = ()) -> None:
    """Log to `stream`, else to standard error, what a command that is soon over has to say.

    `told` are events that the command tells of in its own words.
    """
    from tidegate.core.telemetry.logs import configure

    if log.level == "info":
        configure(log.format, "warning", stream=stream, without=(*_EXPECTED, *told))
    else:
        configure(log.format, log.level, stream=stream)


def mute_log() -> None:
    """Log nothing from now on."""
    from tidegate.core.telemetry.logs import configure

    configure(stream=StringIO())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on the fast event loop."""
    import uvloop

    return uvloop.run(work)


def run_traced(command: str, settings: Settings, work: Coroutine[Any, Any, T]) -> T:
    """The same for a command that begins something: where traces are wanted, one begins with it.

    A trace that the variable TRACEPARENT names, as that of a pipeline does, goes on with it.
    """
    from tidegate.core.telemetry.traces import open_traces, span

    async def traced() -> T:
        with span(f"tidegate {command}", parent=os.environ.get("TRACEPARENT")):
            return await work

    with open_traces(settings.traces):
        return run(traced())
