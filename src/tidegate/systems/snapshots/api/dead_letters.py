"""`/v1/snapshots/dead`: refreshes that failed permanently; replay or drop them."""

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlencode

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.core.telemetry.redaction import redact
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType
from tidegate.http.routes import route
from tidegate.primitives.coalescer import AlreadyProcessing
from tidegate.systems.snapshots.api.snapshots import TAG
from tidegate.systems.snapshots.dead_letters import RefreshDeadLetter
from tidegate.systems.snapshots.events import FailureReason
from tidegate.systems.snapshots.service import Snapshots

T = TypeVar("T")
_AT_ONCE = 20

Limit = Annotated[int, Meta(ge=1, le=500)]
LetterId = Annotated[str, Meta(pattern=r"^[0-9]{1,18}(-[0-9]{1,18}){1,2}$")]
"""Time and number of a stream's entry; time, partition and offset on Kafka."""


class DeadFilter(RequestInput, frozen=True, kw_only=True):
    """Filter and page size of the list."""

    after: LetterId | None = None
    """Only letters after this one."""
    limit: Limit = 50


class DeadSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A refresh that failed permanently, with the reason."""

    id: str
    subject: str
    """Kind and key, separated by a slash."""
    reason: FailureReason
    message: str
    trace: str | None
    retries: int
    """Number of attempts after the first one."""
    failed_at: datetime
    worker: str
    """The process that gave it up."""
    event: Any
    """The event as it was received."""


class DeadPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of dead letters, oldest first."""

    letters: list[DeadSnapshot]
    next: str | None
    """The URL of the next page; null on the last one."""


class DeadRest(RequestInput, frozen=True, kw_only=True):
    """The dead letters to replay."""

    after: LetterId | None = None
    """Only letters after this one: `next_after` of the previous response."""
    limit: Annotated[int, Meta(ge=1, le=200)] = 100


class DeadReplayed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of replaying dead letters."""

    replayed: int
    stayed: int
    """Dead letters that stay: their subject is being refreshed, or this version cannot read them."""
    next_after: str | None
    """Where to continue; null if there are no more."""


class DeadSettled(msgspec.Struct, frozen=True, kw_only=True):
    """The result of replaying or dropping a dead letter."""

    id: str
    outcome: Literal["replayed", "already_processing", "dropped"]
    """`already_processing`: the subject is being refreshed, so nothing was published, and the letter stays."""


class DeadSnapshotRoutes:
    """Handlers for dead letters of snapshots."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._dead = snapshots.dead

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of dead letters."""
        place = "/v1/snapshots/dead/{letter_id}"
        problems = (ProblemType.INVALID,)
        return [
            route("GET", "/v1/snapshots/dead", self.list_dead_snapshots, TAG, problems=problems),
            route("POST", "/v1/snapshots/dead/replay", self.replay_dead_snapshots, TAG, problems=problems),
            route("GET", place, self.show_dead_snapshot, TAG, problems=problems),
            route("DELETE", place, self.drop_dead_snapshot, TAG, problems=problems),
            route("POST", f"{place}/replay", self.replay_dead_snapshot, TAG, problems=problems),
        ]

    async def list_dead_snapshots(self, query: DeadFilter) -> DeadPage:
        """List refreshes that failed permanently."""
        letters = await self._dead.list(after=query.after, limit=query.limit + 1)
        shown, more = letters[: query.limit], letters[query.limit :]
        link = f"/v1/snapshots/dead?{urlencode({'after': shown[-1].id, 'limit': query.limit})}" if more else None
        return DeadPage(letters=[view(letter) for letter in shown], next=link)

    async def show_dead_snapshot(self, letter_id: LetterId) -> DeadSnapshot:
        """Show one dead letter."""
        return view(await _there(letter_id, self._dead.get(letter_id)))

    async def replay_dead_snapshots(self, body: DeadRest = DeadRest()) -> DeadReplayed:  # noqa: B008 - it is frozen
        """Request the oldest failed refreshes again, 100 or `limit` of them; continue with `next_after`."""
        letters = await self._dead.list(after=body.after, limit=body.limit + 1)
        some = letters[: body.limit]
        replayed = 0
        for start in range(0, len(some), _AT_ONCE):
            batch = [self._is_replayed(letter.id) for letter in some[start : start + _AT_ONCE]]
            replayed += sum(await asyncio.gather(*batch))
        behind = some[-1].id if len(letters) > body.limit else None
        return DeadReplayed(replayed=replayed, stayed=len(some) - replayed, next_after=behind)

    async def replay_dead_snapshot(self, letter_id: LetterId) -> DeadSettled:
        """Request a refresh again, under a new version; the letter stays if the subject is being refreshed already."""
        outcome = await _there(letter_id, self._dead.replay(letter_id))
        is_ours = not isinstance(outcome, AlreadyProcessing)
        return DeadSettled(id=letter_id, outcome="replayed" if is_ours else "already_processing")

    async def drop_dead_snapshot(self, letter_id: LetterId) -> DeadSettled:
        """Drop a dead letter permanently."""
        if not await _there(letter_id, self._dead.drop(letter_id)):
            raise NotFound("dead letter", letter_id)
        return DeadSettled(id=letter_id, outcome="dropped")

    async def _is_replayed(self, letter_id: str) -> bool:
        """False also when another caller replayed or dropped it in the meantime."""
        try:
            return not isinstance(await self._dead.replay(letter_id), AlreadyProcessing)
        except (InvalidArgument, NotFound):
            return False


async def _there(letter_id: str, doing: Awaitable[T]) -> T:
    """The result of `doing`; an id in a form that the transport does not use is not found."""
    try:
        return await doing
    except InvalidArgument as error:
        if error.name != "entry_id":
            raise
        raise NotFound("dead letter", letter_id) from None


def view(letter: RefreshDeadLetter) -> DeadSnapshot:
    """A dead letter for callers; secrets in its event are redacted."""
    update = letter.update
    return DeadSnapshot(
        id=letter.id,
        subject=update.subject_id,
        reason=update.reason,
        message=update.message,
        trace=update.trace,
        retries=update.retries,
        failed_at=update.failed_at,
        worker=update.worker,
        event=redact(msgspec.json.decode(update.event)),
    )
