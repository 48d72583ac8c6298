"""What every scenario is given."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import msgspec


class On(StrEnum):
    """What events travel on. A scenario that has nothing to do with events is played once, on `SERVER`."""

    STREAMS = "streams"
    KAFKA = "kafka"
    SERVER = "server"


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Where a scenario is played, and how long."""

    on: On
    folder: Path
    """A new and empty one."""
    seconds: float
    """How long load lasts, in scenarios that are about load."""
    body_bytes: int
    """The size of an upstream's answer."""
    tell: Callable[[str], None]
    """Show the current step."""
