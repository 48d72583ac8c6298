"""Counts dead letters of all kinds, groups them by kind, source, name and reason, and replays or discards a group.

A group is not stored: it is computed from the dead letters. Its id consists of its kind and a digest of source, name
and reason, so it stays the same while the group grows and shrinks. Numbers and quoted texts in a reason are left out,
since they differ between failures with the same cause.

A group is settled in batches: a pass reads the dead letters of the kind in their order, and replays or discards those
of the group. Each dead letter is settled by its own store, atomically, and there is no state of the whole operation.
If a process dies halfway, the remaining dead letters stay, and repeating the operation settles them. A replayed entry
can fail again and be read by the same pass a second time. Therefore a pass settles at most as many dead letters as the
group had when the pass began.
"""

import asyncio
import re
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

import msgspec

from tidegate.core.arguments import require_positive, require_whole
from tidegate.core.errors import Conflict, NotFound
from tidegate.core.telemetry import get_logger
from tidegate.engine.collection import Collection
from tidegate.runtime.waiting import PartialReads, UnreadPart
from tidegate.system import DeadLetterStore, DeadLetterSummary, OpenSystem

log = get_logger(__name__)

MOST_EXAMINED = 10_000
"""Dead letters of one kind that one call examines."""
MOST_SETTLED = 500
"""Dead letters that one call replays or discards."""
_AT_ONCE = 200
_READ_WITHIN_S = 10.0
_LONGEST_REASON = 200
_LONGEST_EXAMPLE = 2000
_VARIES = re.compile(
    r"""
    (?P<quoted> "[^"]*" | '[^']*' | `[^`]*` )
    | (?P<item> \b(?:run|job|entry|event|message|number|user|row|line|column|page|port|id)[ ]\#? )\d+\b
    | (?P<digest> \b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b | \b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b )
    | (?P<status> (?<![\w.:/\#-])[1-5]\d\d(?![\w/-]|\.\d) )
    | (?P<number> (?<![a-z_])\d+(?:[.,:]\d+)*(?:[ ]?(?:ms|s|min|h|d|b|kb|mb|gb)\b)?(?![a-z_]|[.,:]?\d) )
    """,
    re.VERBOSE | re.IGNORECASE,
)


class GroupAction(StrEnum):
    """What is done with the dead letters of a group."""

    REPLAY = "replay"
    DISCARD = "discard"


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters with the same kind, source, name and reason."""

    id: str
    kind: str
    """`events`, `messages`, or the kind of a system, such as `campaigns`."""
    source: str
    """The stream, campaign or host; empty if the kind has none."""
    name: str
    """The kind of event, of subject or of page."""
    reason: str
    """The reason; numbers and quoted texts, which can differ, are `…`."""
    example: str
    """The complete reason of the newest one."""
    count: int
    oldest: datetime
    newest: datetime
    can_discard: bool
    """Whether dead letters of this kind can be discarded."""


class DeadLetterGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Groups, the largest first."""

    groups: list[DeadLetterGroup]
    incomplete: list[str]
    """Kinds with more dead letters than one request examines. Their groups are those of the oldest ones."""
    unknown: list[UnreadPart]
    """Kinds that cannot be read now, with the reason."""


class SettledGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one batch."""

    group: str
    settled: int
    """Number of dead letters that were replayed or discarded."""
    stayed: int
    """Dead letters that stay: they are being processed, or another caller settled them at the same time."""
    next_after: str | None
    """Where the next batch starts; null if there are no more dead letters."""


class GroupedDeadLetters:
    """The dead letters of some systems, by group."""

    def __init__(self, systems: Sequence[OpenSystem], *, most_examined: int = MOST_EXAMINED) -> None:
        require_positive("most_examined", most_examined)
        self._stores = {each.kind: each for system in systems for each in system.dead_letters()}
        self._most_examined = most_examined

    @property
    def kinds(self) -> list[str]:
        """The kinds of dead letters of these systems."""
        return sorted(self._stores)

    async def read(self, kind: str | None = None) -> DeadLetterGroups:
        """Group the dead letters of a kind, or of all. Raises `NotFound` for an unknown kind."""
        stores = list(self._stores.values()) if kind is None else [self._store(kind)]
        reads = PartialReads(within_s=_READ_WITHIN_S)
        asked = [reads.read(store.server, self._group(store), store.kind) for store in stores]
        read = [each for each in await asyncio.gather(*asked) if each is not None]
        groups = [group for each in read for group in each.groups]
        return DeadLetterGroups(
            groups=sorted(groups, key=lambda group: (-group.count, group.kind, group.id)),
            incomplete=sorted(each.kind for each in read if each.is_incomplete),
            unknown=reads.unknown,
        )

    async def find(self, group_id: str) -> DeadLetterGroup:
        """Return one group. Raises `NotFound` if no examined dead letter belongs to it."""
        found = await self._group(self._store(_kind_in_id(group_id)))
        for group in found.groups:
            if group.id == group_id:
                return group
        raise NotFound("group of dead letters", group_id)

    async def settle(
        self, group_id: str, action: GroupAction, *, after: str | None = None, limit: int = MOST_SETTLED
    ) -> SettledGroup:
        """Replay or discard up to `limit` dead letters of a group, starting after the dead letter `after`.

        Raises `NotFound` for an unknown kind, and `Conflict` if its dead letters cannot be discarded.
        """
        require_whole("limit", limit, least=1, most=MOST_SETTLED)
        store = self._store(_kind_in_id(group_id))
        act = store.replay if action is GroupAction.REPLAY else store.discard
        if act is None:
            raise Conflict(f"dead letters of {store.label} cannot be discarded, only replayed")
        found = await self._members(store, group_id, after, limit)
        settled = await act(found.ids) if found.ids else 0
        if settled:
            log.info("dead_letters.settled", group=group_id, action=action.value, letters=settled)
        return SettledGroup(
            group=group_id, settled=settled, stayed=len(found.ids) - settled, next_after=found.next_after
        )

    async def settle_all(self, group_id: str, action: GroupAction) -> SettledGroup:
        """Replay or discard a group in batches; nothing if it has no dead letters any more.

        It settles as many as the group has at the start, so that it ends while others are added.
        """
        grouped = await self._group(self._store(_kind_in_id(group_id)))
        rest = sum(group.count for group in grouped.groups if group.id == group_id)
        settled = stayed = 0
        after: str | None = None
        while rest > 0:
            batch = await self.settle(group_id, action, after=after, limit=min(MOST_SETTLED, rest))
            settled, stayed, after = settled + batch.settled, stayed + batch.stayed, batch.next_after
            rest = 0 if after is None else rest - batch.settled - batch.stayed
        return SettledGroup(group=group_id, settled=settled, stayed=stayed, next_after=after)

    def _store(self, kind: str) -> DeadLetterStore:
        if kind not in self._stores:
            raise NotFound("kind of dead letters", kind)
        return self._stores[kind]

    async def _group(self, store: DeadLetterStore) -> "_Grouped":
        """Group the oldest dead letters of a kind."""
        groups, examined, after = dict[str, DeadLetterGroup](), 0, None
        while examined < self._most_examined:
            letters = await store.page(after, _AT_ONCE)
            for letter in letters:
                group_id = _group_id(store.kind, letter)
                groups[group_id] = _with_letter(groups.get(group_id), store, group_id, letter)
            examined += len(letters)
            if len(letters) < _AT_ONCE:
                return _Grouped(store.kind, list(groups.values()), is_incomplete=False)
            after = letters[-1].id
        return _Grouped(store.kind, list(groups.values()), is_incomplete=True)

    async def _members(self, store: DeadLetterStore, group_id: str, after: str | None, limit: int) -> "_Members":
        """The first dead letters of a group after `after`, as far as one call examines."""
        ids, examined = list[str](), 0
        while examined < self._most_examined:
            letters = await store.page(after, _AT_ONCE)
            for letter in letters:
                after = letter.id
                if _group_id(store.kind, letter) == group_id:
                    ids.append(letter.id)
                if len(ids) == limit:
                    return _Members(ids, after)
            if len(letters) < _AT_ONCE:
                return _Members(ids, None)
            examined += len(letters)
        return _Members(ids, after)


class _Grouped(NamedTuple):
    kind: str
    groups: list[DeadLetterGroup]
    is_incomplete: bool


class _Members(NamedTuple):
    ids: list[str]
    next_after: str | None


def reason_pattern(reason: str) -> str:
    """The first line of a reason without what differs between failures with the same cause.

    Numbers, quoted texts and digests become `…`. Numbers that look like an HTTP status stay.

    Example:
        reason_pattern("503: no answer for 'ada' after 1.5 s")  # "503: no answer for … after … s"
    """
    first = reason.strip().partition("\n")[0]
    return _VARIES.sub(lambda match: match["status"] or f"{match['item'] or ''}…", first)[:_LONGEST_REASON]


def _with_letter(
    group: DeadLetterGroup | None, store: DeadLetterStore, group_id: str, letter: DeadLetterSummary
) -> DeadLetterGroup:
    """The group with one more dead letter."""
    if group is None:
        return DeadLetterGroup(
            id=group_id,
            kind=store.kind,
            source=letter.source,
            name=letter.name,
            reason=reason_pattern(letter.reason),
            example=letter.reason[:_LONGEST_EXAMPLE],
            count=1,
            oldest=letter.at,
            newest=letter.at,
            can_discard=store.discard is not None,
        )
    is_newer = letter.at >= group.newest
    return msgspec.structs.replace(
        group,
        count=group.count + 1,
        oldest=min(group.oldest, letter.at),
        newest=max(group.newest, letter.at),
        example=letter.reason[:_LONGEST_EXAMPLE] if is_newer else group.example,
    )


def _group_id(kind: str, letter: DeadLetterSummary) -> str:
    common = msgspec.json.encode([letter.source, letter.name, reason_pattern(letter.reason)])
    return f"{kind}-{sha256(common).hexdigest()[:16]}"


def _kind_in_id(group_id: str) -> str:
    return group_id.rpartition("-")[0]


_MOST_NAMED = 20
_FIRST = {"events": 0, "messages": 1}


class DeadLetterPartCount(msgspec.Struct, frozen=True, kw_only=True):
    """Number of dead letters of one stream or campaign."""

    name: str
    """Name of the stream or campaign."""
    count: int


class DeadLetterCount(msgspec.Struct, frozen=True, kw_only=True):
    """Number of dead letters of one kind."""

    kind: str
    label: str
    """Display name of the kind."""
    count: int | None
    """Null if it cannot be read now."""
    parts: list[DeadLetterPartCount]
    """The count per stream or per campaign; at most the twenty campaigns with the most dead letters."""
    link: str
    """The dashboard page that lists them."""


class DeadLetterOverview(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of dead letters of all kinds."""

    at: datetime
    dead: list[DeadLetterCount]
    unknown: list[UnreadPart]


class DeadLetterCounter:
    """Counts the dead letters of all kinds."""

    def __init__(self, collection: Collection, systems: Sequence[OpenSystem]) -> None:
        self._clock = collection.parts.database.clock
        stores = [each for system in systems for each in system.dead_letters()]
        # Those of the engine first, whatever the order of the systems.
        self._stores = sorted(stores, key=lambda store: _FIRST.get(store.kind, len(_FIRST)))

    async def read(self) -> DeadLetterOverview:
        """Count the dead letters of all kinds."""
        reads = PartialReads()
        dead = await self.counts(reads)
        return DeadLetterOverview(at=self._clock.now(), dead=dead, unknown=reads.unknown)

    async def counts(self, reads: PartialReads) -> list[DeadLetterCount]:
        """Like `read`, as a part of other reads; a failed count is reported as `dead/` and the kind."""
        return list(await asyncio.gather(*(_count(reads, each) for each in self._stores)))


async def _count(reads: PartialReads, store: DeadLetterStore) -> DeadLetterCount:
    """Count the dead letters of one kind, in total and by part; None if its server does not answer."""
    found = await reads.read(store.server, store.count(), f"dead/{store.kind}")
    if found is None:
        return _dead_count(store, None)
    most = sorted(found.items(), key=lambda each: (-each[1], each[0]))[:_MOST_NAMED]
    parts = [DeadLetterPartCount(name=name, count=n) for name, n in most if name and n]
    return _dead_count(store, sum(found.values()), parts)


def _dead_count(
    store: DeadLetterStore, count: int | None, parts: Sequence[DeadLetterPartCount] = ()
) -> DeadLetterCount:
    return DeadLetterCount(
        kind=store.kind, label=store.label, count=count, parts=list(parts), link=f"#/dead/{store.kind}"
    )
