"""What a policy knows of a subject, and what it decides."""

from datetime import datetime
from typing import Protocol

import msgspec
import xxhash

from tidegate.systems.snapshots.subject import Subject


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the row of a subject says that bears on when to ask for it."""

    subject: Subject
    version: int = 0
    upstream_id: str | None = None
    last_checked_at: datetime | None = None
    last_asked_at: datetime | None = None
    """When somebody last read it."""
    change_rate: float | None = None
    """Changes per day, as learned; None: never checked twice."""
    changes: int = 0
    """Checks that found a change; the first one of all, which has nothing to compare with, is none."""
    next_due_at: datetime | None = None
    """When somebody has to look at it again."""


class Policy(Protocol):
    """Decides when subjects are due. Asking it costs nothing and changes nothing."""

    def due_at(self, facts: Facts, now: datetime) -> datetime:
        """When to ask for the subject next, by what is known `now`; not later than `now` means at once."""
        ...


def fraction(subject: Subject, salt: int = 0) -> float:
    """A number from 0 to 1 that belongs to the subject, the same in every process; spread evenly over all subjects."""
    return xxhash.xxh3_64_intdigest(subject.id.encode(), seed=salt % 2**32) / 2**64
