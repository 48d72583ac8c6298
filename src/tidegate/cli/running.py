"""Setup of commands: reads the settings, configures the log, runs the event loop."""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Coroutine, Iterable
from io import StringIO
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

if TYPE_CHECKING:
    from tidegate.core.telemetry.logs import LogSettings
    from tidegate.settings import Settings

T = TypeVar("T")

_NEW = 50_000
"""A collection of garbage starts after this many new objects."""
_YOUNG, _OLD = 20, 50

_EXPECTED = ("worker.died", "worker.lease_ended", "worker.unregistered", "stream.taken_over")
"""Log events that short commands suppress, since the user knows that an earlier process was interrupted."""


def load_settings() -> Settings:
    """Load the settings, and configure the log of a short command: warnings and errors only."""
    from tidegate.settings import Settings

    settings = Settings.load()
    configure_log(settings.log)
    return settings


def configure_log(log: LogSettings, *, stream: TextIO | None = None, reported: Iterable[str] = ()) -> None:
    """Configure the log of a short command, to `stream` or standard error.

    `reported` are events that are not logged, because the command reports them itself.
    """
    from tidegate.core.telemetry.logs import configure_logs

    # The default level would mix log lines into the output of a short command. Any other level was chosen on purpose.
    if log.level == "info":
        configure_logs(log.format, "warning", stream=stream, without=(*_EXPECTED, *reported))
    else:
        configure_logs(log.format, log.level, stream=stream)


def mute_log() -> None:
    """Disable the log until the process ends."""
    from tidegate.core.telemetry.logs import configure_logs

    configure_logs(stream=StringIO())


def make_gc_rare() -> None:
    """Make collections of garbage rare from here on, and skip the one at the exit.

    Most objects of a command, such as imported modules, live until it ends, so these collections would find little.
    """
    gc.set_threshold(_NEW, _YOUNG, _OLD)
    atexit.register(gc.freeze)


def tune_gc() -> None:
    """Exclude all present objects from later collections and make collections rarer. Call it after the set-up."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW, _YOUNG, _OLD)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop, if it is available."""
    import uvloop

    return uvloop.run(work)


def run_traced(command: str, settings: Settings, work: Coroutine[Any, Any, T]) -> T:
    """Like `run`, as the root span of a trace if traces are enabled.

    The environment variable TRACEPARENT, which pipelines set, names the parent of the span.
    """
    from tidegate.core.telemetry.traces import open_traces, span

    async def traced() -> T:
        with span(f"tidegate {command}", parent=os.environ.get("TRACEPARENT")):
            return await work

    with open_traces(settings.traces):
        return run(traced())
