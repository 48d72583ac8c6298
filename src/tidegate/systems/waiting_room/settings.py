"""Settings of the waiting room system. The settings of each room are in the database (`RoomPlan`)."""

from datetime import timedelta
from typing import Annotated

from annotated_types import Ge, Le
from pydantic import BaseModel, Field

from tidegate.systems.waiting_room.model import SECOND


class WaitingRoomSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of the waiting room system."""

    admitted_at_once: int = Field(default=100, ge=1, le=100)
    """Number of visitors that are taken out of the line and written to the database together."""
    settle_after: Annotated[timedelta, Ge(SECOND), Le(timedelta(minutes=5))] = timedelta(seconds=10)
    """The leader completes or reverts an invitation that is in progress for this long, since its process may be dead.
    Other admissions in progress are settled when the next leader takes the room over."""
    tokens_kept: Annotated[timedelta, Ge(timedelta(days=1)), Le(timedelta(days=36_500))] = timedelta(days=90)
    """How long the record of an admission is kept after it ended."""
