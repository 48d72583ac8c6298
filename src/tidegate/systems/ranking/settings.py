"""Settings of the ranking system."""

from datetime import UTC, tzinfo
from typing import Annotated, Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, Field, field_validator, model_validator

LONGEST_BOARD = 40
FieldName = Annotated[str, Field(min_length=1, max_length=100)]


class Board(BaseModel, frozen=True, extra="forbid"):
    """A board, and the outbox events that count on it."""

    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$", max_length=LONGEST_BOARD)
    """Name of the board in commands, addresses and keys."""
    timezone: str = Field(default="UTC", max_length=64)
    """Time zone of the calendar of days, weeks and months, such as `Asia/Seoul`. After a change, all scores are
    recomputed."""
    event: Annotated[str, Field(min_length=1, max_length=200)] = "ranking.counted"
    """Kind of the events that count, such as `PaymentCompleted`. The fields below are names in its payload."""
    member: FieldName = "member"
    """Field of the member for which the event counts: a text or a whole number."""
    id: FieldName = "event_id"
    """Field that identifies the event when it is delivered again."""
    time: FieldName = "time"
    """Field with the time of the event, as ISO 8601 with a time zone."""
    amount: FieldName = "amount"
    """Field with the amount, a whole number from 1; 1 if the field is absent."""

    @property
    def zone(self) -> tzinfo:
        """The time zone of the calendar."""
        return _zone(self.timezone)

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, value: str) -> str:
        try:
            _zone(value)
        except (KeyError, ValueError, OSError):
            raise ValueError("is no time zone that this machine knows (package: tzdata)") from None
        return value


class RankingSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of the ranking system."""

    boards: tuple[Board, ...] = Field(default=(), max_length=100)
    """The boards; each ranks its members by day, ISO week and month."""

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        names = [board.name for board in self.boards]
        if len(names) != len(set(names)):
            raise ValueError(f"two boards have one name: {sorted(names)}")
        return self


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)  # UTC is known on every machine, also without tzdata
