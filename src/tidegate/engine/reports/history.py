"""What is stored about users before a run starts: the active run, the last completed run, and its cursors."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

import msgspec
from sqlalchemy import func, select

from tidegate.core.arguments import require_positive
from tidegate.engine.lifecycle import RunState
from tidegate.engine.runs import Run, from_row
from tidegate.engine.tables import collection_cursors, collection_runs
from tidegate.storage.sql import Transaction

_USERS_AT_ONCE = 500


class ReadResources(msgspec.Struct, frozen=True, kw_only=True):
    """Number of resources of one kind that the runs of a user have read completely. The next run requests each once."""

    kind: str
    resources: int
    credential: str | None
    """The credential for which a request is free if the resource is unchanged; None if there is none."""


class RunAverages(msgspec.Struct, frozen=True):
    """The average cost of a user's run."""

    users: int
    calls: float
    """Average over users of the calls of their largest run."""


def active_runs(tx: Transaction, source: str, user_ids: Sequence[str]) -> dict[str, Run]:
    """Return the active runs of these users, by user."""
    run = collection_runs.c
    found: dict[str, Run] = {}
    for some in _portions(user_ids):
        wanted = select(collection_runs).where(run.active_key.in_([f"{source}:{user_id}" for user_id in some]))
        found |= {row.user_id: from_row(row) for row in tx.execute(wanted)}
    return found


def last_completed(tx: Transaction, source: str, user_ids: Sequence[str]) -> dict[str, Run]:
    """Return the last completed run of each of these users, by user."""
    run = collection_runs.c
    found: dict[str, Run] = {}
    for some in _portions(user_ids):
        newest = (
            select(func.max(run.id))
            .where(run.user_id.in_(some), run.source == source, run.status == RunState.COMPLETED)
            .group_by(run.user_id)
        )
        rows = tx.execute(select(collection_runs).where(run.id.in_(newest)))
        found |= {row.user_id: from_row(row) for row in rows}
    return found


def marks_of(
    tx: Transaction, source: str, user_ids: Sequence[str], resource: str | None = None
) -> dict[str, list[ReadResources]]:
    """Count the cursors that earlier runs of these owners stored, by owner. Owners without cursors are omitted.

    With `resource`, only the cursors of that resource, compared without regard to case.
    """
    at = collection_cursors.c
    found: defaultdict[str, list[ReadResources]] = defaultdict(list)
    those = [] if resource is None else [func.lower(at.resource_key) == resource.lower()]
    for some in _portions(user_ids):
        counted = (
            select(at.user_id, at.resource_type, at.last_credential, func.count())
            .where(at.source == source, at.user_id.in_(some), *those)
            .group_by(at.user_id, at.resource_type, at.last_credential)
        )
        for user_id, kind, credential, count in tx.execute(counted):
            found[user_id].append(ReadResources(kind=kind, resources=count, credential=credential))
    return dict(found)


def known_resources(
    tx: Transaction, source: str, user_ids: Sequence[str], prefix: str, *, besides: Collection[str] = ()
) -> dict[str, int]:
    """Count the resources that begin with `prefix` and of which earlier runs stored cursors, by owner.

    Cursors of the kinds `besides` do not count.
    """
    at = collection_cursors.c
    found: dict[str, int] = {}
    for some in _portions(user_ids):
        counted = select(at.user_id, func.count(func.lower(at.resource_key).distinct())).where(
            at.source == source,
            at.user_id.in_(some),
            at.resource_key.startswith(prefix, autoescape=True),
            at.resource_type.not_in(sorted(besides)),
        )
        found |= {row[0]: row[1] for row in tx.execute(counted.group_by(at.user_id))}
    return found


def typical(tx: Transaction, source: str, most: int = 500) -> RunAverages:
    """Compute the average from the last `most` completed runs."""
    require_positive("most", most)
    run = collection_runs.c
    recent = select(run.user_id, run.calls).where(run.status == RunState.COMPLETED, run.source == source)
    recent = recent.order_by(run.id.desc()).limit(most).subquery()
    largest = select(func.max(recent.c.calls).label("calls")).group_by(recent.c.user_id).subquery()
    users, calls = tx.execute(select(func.count(), func.avg(largest.c.calls)).select_from(largest)).one()
    return RunAverages(users=users, calls=float(calls or 0))


def _portions(user_ids: Sequence[str]) -> Iterator[list[str]]:
    """Split the ids into portions, because servers limit the parameters of a statement."""
    remaining = iter(sorted(set(user_ids)))
    while some := list(islice(remaining, _USERS_AT_ONCE)):
        yield some
