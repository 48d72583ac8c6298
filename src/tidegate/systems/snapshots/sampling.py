"""Random samples of subjects. Their size is bounded, so their cost does not depend on the number of rows.

Each row has a position in a random order (`sample_place`), derived from a hash of its subject. A sample consists of the
rows of a kind that follow a random position; the order is circular. The density of the sampled positions tells how many
rows there are.
"""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, bindparam, select

from tidegate.storage.sql import Transaction
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.prefetch.policies import fraction
from tidegate.systems.snapshots.tables import snapshots

SAMPLE_PLACES = 2**31
_SALT = 1
"""Makes the random order independent of the order in which prefetch spreads subjects."""
_c = snapshots.c


class SubjectSample(NamedTuple):
    """Rows of one kind."""

    rows: Sequence[Sequence[Any]]
    """The selected columns."""
    total: int
    """Number of subjects of the kind. An unbiased estimate, unless `is_all`."""
    is_all: bool
    """Whether the sample has all subjects of the kind."""


def sample_place(subject: SnapshotSubject) -> int:
    """Return the position of a subject in a random order of all subjects, equal in every process."""
    return int(fraction(subject, _SALT) * SAMPLE_PLACES)


def random_place() -> int:
    """Return a position at which a sample can begin."""
    return random.randrange(SAMPLE_PLACES)  # noqa: S311 - a sample, not a secret


def kinds_of(tx: Transaction) -> list[str]:
    """Return all kinds that have rows, by one index search for each."""
    found: list[str] = []
    last = ""  # no kind has an empty name
    following = select(_c.kind).where(_c.kind > bindparam("last")).order_by(_c.kind).limit(1)
    while (kind := tx.execute(following, {"last": last}).scalar_one_or_none()) is not None:
        found.append(kind)
        last = kind
    return found


def sample(tx: Transaction, kind: str, columns: Sequence[ColumnElement[Any]], most: int, start: int) -> SubjectSample:
    """Return up to `most` rows of a kind, beginning at the position `start`."""
    those = select(_c.sample_place, *columns).where(_c.kind == kind).order_by(_c.sample_place)
    rows = list(tx.execute(those.where(_c.sample_place >= start).limit(most)))
    # The order is circular: continue from its beginning.
    if len(rows) < most:
        rows += tx.execute(those.where(_c.sample_place < start).limit(most - len(rows)))
    sampled = [row[1:] for row in rows]
    if len(rows) < most:
        return SubjectSample(sampled, len(rows), is_all=True)
    # For n of N uniformly distributed positions, (n - 1) / (distance to the n-th) has the expectation N.
    distance = (rows[-1][0] - start) % SAMPLE_PLACES
    return SubjectSample(sampled, round((most - 1) * SAMPLE_PLACES / max(distance, 1)), is_all=False)
