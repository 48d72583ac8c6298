"""Which boards there are, and what counts on them."""

from datetime import UTC, tzinfo
from typing import Annotated, Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, Field, field_validator, model_validator

LONGEST_BOARD = 40
FieldName = Annotated[str, Field(min_length=1, max_length=100)]


class Board(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """A board, and the events of the outbox that count on it."""

    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$", max_length=LONGEST_BOARD)
    """What commands, addresses and keys call it."""
    timezone: str = Field(default="UTC", max_length=64)
    """By whose calendar days, weeks and months are told, like `Asia/Seoul`. Where it changes, all is counted anew."""
    event: Annotated[str, Field(min_length=1, max_length=200)] = "ranking.counted"
    """The kind of event that counts, like `PaymentCompleted`; those below are names in its payload."""
    member: FieldName = "member"
    """Whom it counts for: a text or a whole number."""
    id: FieldName = "event_id"
    """What makes it the same event when it comes again."""
    time: FieldName = "time"
    """When it happened, as ISO 8601 with a time zone."""
    amount: FieldName = "amount"
    """How much it counts, a whole number from 1; where it is not there, 1."""

    @property
    def zone(self) -> tzinfo:
        """The calendar."""
        return _zone(self.timezone)

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, value: str) -> str:
        try:
            _zone(value)
        except (KeyError, ValueError, OSError):
            raise ValueError("is no time zone that this machine knows (package: tzdata)") from None
        return value


class RankingSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Which boards there are, and what counts on them."""

    boards: tuple[Board, ...] = Field(default=(), max_length=100)
    """Each ranks its members by day, ISO week and month."""

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        names = [board.name for board in self.boards]
        if len(names) != len(set(names)):
            raise ValueError(f"two boards have one name: {sorted(names)}")
        return self


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)  # which is known everywhere, also where no other zone is
