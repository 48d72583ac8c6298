"""What a waiting room is made of, as callers give it and are told it."""

from datetime import timedelta
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidegate.http.endpoints import Given
from tidegate.systems.waiting_room import RoomPlan
from tidegate.systems.waiting_room.settings import MOST_CAPACITY, MOST_LOG, MOST_PUZZLE_BITS
from tidegate.systems.waiting_room.tables import LONGEST_ENTRANCE, LONGEST_TITLE

Capacity = Annotated[int, Meta(ge=0, le=MOST_CAPACITY)]
Rate = Annotated[float, Meta(gt=0, le=MOST_CAPACITY)]
Span = Annotated[float, Meta(ge=1, le=86_400)]
PuzzleBits = Annotated[int, Meta(ge=0, le=MOST_PUZZLE_BITS)]
LogLength = Annotated[int, Meta(ge=0, le=MOST_LOG)]
Title = Annotated[str, Meta(max_length=LONGEST_TITLE, extra_json_schema={"format": "title"})]
Address = Annotated[str, Meta(max_length=LONGEST_ENTRANCE, extra_json_schema={"format": "entrance"})]


class Plan(Given, frozen=True, kw_only=True):
    """What a room is made of."""

    capacity: Capacity
    """How many may be inside at once."""
    admit_per_second: Rate | None = None
    """How many may come in per second, over any span of time; null: any number."""
    session_s: Span = 600.0
    """How long one may stay inside without doing anything."""
    longest_session_s: Span = 1800.0
    """How long one may stay inside in all; not shorter than `session_s`."""
    abandon_after_s: Span = 120.0
    """Who waits and gives no sign of life for so long is dropped from the line."""
    log_length: LogLength = 0
    """About how many steps the room's log keeps; 0: it keeps none."""
    title: Title = ""
    """What people see; the room's name where it is empty."""
    entrance: Address | None = None
    """Where those go who were let in: an absolute http(s) address, or a path that begins with one slash."""
    anybody: bool = False
    """Whether the page takes in visitors nobody vouches for; else only those whom the shop's server brought."""
    puzzle_bits: PuzzleBits = 0
    """Difficulty of the hash puzzle that the page's script solves before such a visitor may join; 0: none."""

    def read(self) -> RoomPlan:
        """As the room understands it; raise `InvalidArgument`."""
        return RoomPlan(
            capacity=self.capacity,
            admit_per_second=self.admit_per_second,
            session=timedelta(seconds=self.session_s),
            longest_session=timedelta(seconds=self.longest_session_s),
            abandon_after=timedelta(seconds=self.abandon_after_s),
            log_length=self.log_length,
            title=self.title,
            entrance=self.entrance,
            anybody=self.anybody,
            puzzle_bits=self.puzzle_bits,
        )

    @classmethod
    def of(cls, plan: RoomPlan) -> "Plan":
        """As it is told."""
        return cls(
            capacity=plan.capacity,
            admit_per_second=plan.admit_per_second,
            session_s=plan.session.total_seconds(),
            longest_session_s=plan.longest_session.total_seconds(),
            abandon_after_s=plan.abandon_after.total_seconds(),
            log_length=plan.log_length,
            title=plan.title,
            entrance=plan.entrance,
            anybody=plan.anybody,
            puzzle_bits=plan.puzzle_bits,
        )


class PlanChange(Given, frozen=True, kw_only=True):
    """What is to be different; what is left out stays as it is."""

    capacity: Capacity | UnsetType = UNSET
    admit_per_second: Rate | UnsetType | None = UNSET
    """Null takes the bound off."""
    session_s: Span | UnsetType = UNSET
    longest_session_s: Span | UnsetType = UNSET
    abandon_after_s: Span | UnsetType = UNSET
    log_length: LogLength | UnsetType = UNSET
    title: Title | UnsetType = UNSET
    entrance: Address | UnsetType | None = UNSET
    """Null takes it away."""
    anybody: bool | UnsetType = UNSET
    puzzle_bits: PuzzleBits | UnsetType = UNSET

    def read(self) -> dict[str, Any]:
        """The fields of a `RoomPlan` that are named."""
        named = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}
        return {
            name.removesuffix("_s"): timedelta(seconds=value) if name.endswith("_s") else value
            for name, value in named.items()
        }
