"""What every command does first: read the settings, set up the log, run an event loop."""

from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

from tidegate.settings import Settings
from tidegate.telemetry.logs import configure

T = TypeVar("T")


def load_settings() -> Settings:
    """The settings of this installation. A command that is soon over logs nothing below a warning."""
    settings = Settings.load()
    level = settings.log.level
    configure(settings.log.format, "warning" if level == "info" else level)
    return settings


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on the fast event loop."""
    return uvloop.run(work)
