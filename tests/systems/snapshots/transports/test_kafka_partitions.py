"""Which offset may be committed, compared with a model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.systems.snapshots.transports.kafka.partitions import MemberOffsets

HELD = st.lists(st.integers(0, 30), max_size=60)


@given(gaps=st.lists(st.integers(0, 3), min_size=1, max_size=30), done=HELD)
def test_only_finished_messages_without_a_gap_are_committed(gaps: list[int], done: list[int]):
    """Offsets may have gaps: Kafka numbers more than messages."""
    books = MemberOffsets()
    offsets = [100 + sum(gaps[: n + 1]) + n for n in range(len(gaps))]
    books.open(3, offsets[0])
    handles = [books.take(3, offset) for offset in offsets]
    left = set(offsets)
    committed = offsets[0]
    for index in done:
        if index < len(offsets):
            books.done(handles[index] or "")
            left.discard(offsets[index])
        expected = min(left, default=offsets[-1] + 1)
        fresh = books.to_commit()
        assert fresh == ({3: (expected, "open")} if expected > committed else {})
        books.note_committed(fresh)
        committed = max(committed, expected)


def test_a_redelivered_message_is_not_processed_twice():
    books = MemberOffsets()
    books.open(0, 5)
    assert books.take(0, 5)
    assert books.take(0, 6)
    assert books.take(0, 5) is None
    assert books.take(0, 7)


def test_a_kept_partition_continues_and_a_revoked_one_is_forgotten():
    books = MemberOffsets()
    books.open(0, 5)
    books.open(1, 9)
    stays, goes = books.take(0, 5) or "", books.take(1, 9) or ""
    books.keep_only({0, 2})

    books.done(stays)
    books.done(goes)
    assert books.to_commit() == {0: (6, "open")}

    assert books.take(1, 9) is None
    books.open(1, 9)
    again = books.take(1, 9)
    assert again is not None
    assert again != goes
    books.done(goes)
    assert books.to_commit() == {0: (6, "open")}
    assert books.holds(again)


def test_offsets_committed_by_others_meanwhile_count_as_done():
    books = MemberOffsets()
    books.open(0, 5)
    handles = [books.take(0, offset) or "" for offset in (5, 6, 7, 8)]
    books.continue_with(0, (7, "open"))
    assert [books.holds(each) for each in handles] == [False, False, True, True]
    assert books.to_commit() == {}
    books.done(handles[2])
    assert books.to_commit() == {0: (8, "open")}
    books.continue_with(0, (20, "open"))
    assert books.take(0, 12) is None
    assert books.take(0, 20)


def test_an_open_partition_cannot_be_opened_again():
    books = MemberOffsets()
    books.open(0, 5)
    with pytest.raises(AssertionError):
        books.open(0, 5)
