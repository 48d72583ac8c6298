"""Dead letters are grouped by cause, and a group is replayed or discarded in batches that can be repeated."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from tidegate.core.errors import Conflict, InvalidArgument, NotFound, Unavailable
from tidegate.dashboard.dead_letters import (
    GroupAction,
    GroupedDeadLetters,
    reason_pattern,
)
from tidegate.system import DeadLetterStore, DeadLetterSummary, OpenSystem

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Letters(OpenSystem):
    """A system whose dead letters are in memory."""

    def __init__(self, kind: str = "letters", *, discards: bool = True) -> None:
        self.kind, self.discards = kind, discards
        self.letters = dict[str, DeadLetterSummary]()
        self.replayed, self.dies_after = list[str](), 1_000_000
        self.fails_again = False
        self.pages = 0
        self._next = 0

    def add(self, *reasons: str, source: str = "here", name: str = "work") -> None:
        for reason in reasons:
            self._next += 1
            number = f"{self._next:06}"
            self.letters[number] = DeadLetterSummary(number, source, name, reason, NOON + timedelta(minutes=self._next))

    def dead_letters(self) -> Sequence[DeadLetterStore]:
        discard = self.remove if self.discards else None
        return [DeadLetterStore(self.kind, self.kind, self.count, self.page, self.replay, discard)]

    async def count(self) -> Mapping[str, int]:
        return {"": len(self.letters)}

    async def page(self, after: str | None, limit: int) -> Sequence[DeadLetterSummary]:
        self.pages += 1
        return [letter for number, letter in sorted(self.letters.items()) if number > (after or "")][:limit]

    async def replay(self, ids: Sequence[str]) -> int:
        settled = 0
        for number in ids:
            if len(self.replayed) == self.dies_after:
                raise Unavailable("the store died")
            letter = self.letters.pop(number, None)
            if letter is not None:
                self.replayed.append(number)
                settled += 1
                if self.fails_again:
                    self.add(letter.reason)
        return settled

    async def remove(self, ids: Sequence[str]) -> int:
        return sum(self.letters.pop(number, None) is not None for number in ids)


@pytest.mark.parametrize(
    ("reason", "pattern"),
    [
        ("503: no answer for 'ada' after 1.5 s", "503: no answer for … after …"),
        ("run 404 is canceled", "run … is canceled"),
        ("HTTP 404 for /users/4711", "HTTP 404 for /users/…"),
        ("it failed at 10:32:07", "it failed at …"),
        ("no row 6f1ed002-ab5d-4d0c-8a2e-7f9b3c1d0e4f", "no row …"),
        ("etag 0123456789abcdef changed", "etag … changed"),
        ("deadbeefcafe is a word", "deadbeefcafe is a word"),
        ("UPSTREAM_4XX: version v2 took 84ms, 1,200 bytes", "UPSTREAM_4XX: version v2 took …, … bytes"),
        ("user-17 at 10.0.0.1:8080", "user-… at …"),
        ("  first line \n second 17", "first line "),
        ("", ""),
        ("x" * 300, "x" * 200),
    ],
)
def test_a_reason_is_reduced_to_what_failures_with_the_same_cause_share(reason: str, pattern: str):
    assert reason_pattern(reason) == pattern


async def test_groups_have_one_source_name_and_reason_and_the_largest_is_first():
    letters, others = Letters(), Letters("others", discards=False)
    letters.add("no user 'ada'", "it is full")
    letters.add("no user 'eve'", "no user 'zoe'")
    letters.add("no user 'kim'", source="there")
    others.add("it is full")

    found = await GroupedDeadLetters([letters, others]).read()

    told = [(one.kind, one.source, one.reason, one.count, one.can_discard) for one in found.groups]
    assert told[0] == ("letters", "here", "no user …", 3, True)
    assert sorted(told[1:]) == [
        ("letters", "here", "it is full", 1, True),
        ("letters", "there", "no user …", 1, True),
        ("others", "here", "it is full", 1, False),
    ]
    largest = found.groups[0]
    assert (largest.oldest, largest.newest) == (NOON + timedelta(minutes=1), NOON + timedelta(minutes=4))
    assert largest.example == "no user 'zoe'"
    assert len({one.id for one in found.groups}) == 4
    assert (found.incomplete, found.unknown) == ([], [])


async def test_a_group_is_settled_in_batches_and_the_others_stay():
    letters = Letters()
    for number in range(450):
        letters.add(f"no user {number}", "it is full")
    grouped = GroupedDeadLetters([letters])
    [group] = [one for one in (await grouped.read("letters")).groups if one.reason != "it is full"]

    first = await grouped.settle(group.id, GroupAction.REPLAY, limit=200)
    rest = await grouped.settle(group.id, GroupAction.REPLAY, after=first.next_after, limit=500)
    again = await grouped.settle(group.id, GroupAction.REPLAY)

    assert (first.settled, first.stayed, first.next_after is None) == (200, 0, False)
    assert (rest.settled, rest.stayed, rest.next_after) == (250, 0, None)
    assert (again.settled, again.stayed, again.next_after) == (0, 0, None)
    assert {letter.reason for letter in letters.letters.values()} == {"it is full"}


async def test_an_operation_that_was_cut_off_is_completed_by_repeating_it():
    letters = Letters()
    letters.add(*["it is full"] * 1_200)
    letters.dies_after = 700
    grouped = GroupedDeadLetters([letters])
    group = (await grouped.read()).groups[0]

    with pytest.raises(Unavailable):
        await grouped.settle_all(group.id, GroupAction.REPLAY)
    letters.dies_after = 1_000_000
    rest = await grouped.settle_all(group.id, GroupAction.REPLAY)

    assert (rest.settled, len(letters.letters)) == (500, 0)
    assert (await grouped.settle_all(group.id, GroupAction.REPLAY)).settled == 0
    assert sorted(letters.replayed) == sorted(set(letters.replayed)), "each is replayed once"
    with pytest.raises(NotFound):
        await grouped.find(group.id)


async def test_a_pass_ends_although_every_replay_fails_again():
    letters = Letters()
    letters.add(*["it is full"] * 1_100)
    letters.fails_again = True
    grouped = GroupedDeadLetters([letters])

    settled = await grouped.settle_all((await grouped.read()).groups[0].id, GroupAction.REPLAY)

    assert (settled.settled, len(letters.letters)) == (1_100, 1_100)


async def test_one_call_examines_a_bounded_number_of_dead_letters():
    letters = Letters()
    letters.add(*["it is full"] * 400, "the last one")
    grouped = GroupedDeadLetters([letters], most_examined=400)

    found = await grouped.read()
    last = (await GroupedDeadLetters([letters]).read()).groups[-1]
    letters.pages = 0
    first = await grouped.settle(last.id, GroupAction.DISCARD)
    rest = await grouped.settle(last.id, GroupAction.DISCARD, after=first.next_after)

    assert ([one.count for one in found.groups], found.incomplete) == ([400], ["letters"])
    assert (first.settled, first.next_after, letters.pages) == (0, "000400", 3)
    assert (rest.settled, rest.next_after) == (1, None)


async def test_what_does_not_exist_and_what_must_not_be_discarded_is_refused():
    letters = Letters(discards=False)
    letters.add("it is full")
    grouped = GroupedDeadLetters([letters])
    group = (await grouped.read()).groups[0].id

    with pytest.raises(Conflict, match="only replayed"):
        await grouped.settle(group, GroupAction.DISCARD)
    with pytest.raises(NotFound):
        await grouped.settle("nothing-0123456789abcdef", GroupAction.REPLAY)
    with pytest.raises(NotFound):
        await grouped.read("nothing")
    with pytest.raises(NotFound):
        await grouped.find("letters-0123456789abcdef")
    with pytest.raises(InvalidArgument, match="limit"):
        await grouped.settle(group, GroupAction.REPLAY, limit=501)


async def test_a_kind_that_cannot_be_read_leaves_the_others_readable():
    letters, broken = Letters(), Letters("broken")
    letters.add("it is full")

    async def page(after: str | None, limit: int) -> Sequence[DeadLetterSummary]:
        raise Unavailable("it is away")

    broken.page = page
    found = await GroupedDeadLetters([broken, letters]).read()

    assert [one.kind for one in found.groups] == ["letters"]
    assert [(part.part, part.reason) for part in found.unknown] == [("broken", "the database cannot be reached")]
