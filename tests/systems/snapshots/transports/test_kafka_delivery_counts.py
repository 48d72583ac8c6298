"""Counting deliveries to processes that died, compared with a model."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.systems.snapshots.transports.kafka.partitions import DeliveryCounts, is_open

Life = tuple[list[int], list[int], bool]
"""What a process was handed, which of it was done, and whether it left in order."""
OFFSETS = st.lists(st.integers(0, 11), unique=True, max_size=6).map(sorted)
LIVES = st.lists(st.tuples(OFFSETS, OFFSETS, st.booleans()), min_size=1, max_size=8)
END = 12


@given(lives=LIVES)
def test_process_deaths_are_counted_once_the_first_one_was_noticed(lives: list[Life]):
    text, counts, is_exact = "", dict.fromkeys(range(END), 0), False
    for handed, done, leaves in lives:
        attempts = DeliveryCounts.read(text, 0, END)
        for offset in handed:
            times = attempts.begin(offset)
            # Nobody knows what the first had in hand that died: it may be counted once too often, and never too seldom.
            assert times - 1 in ({counts[offset]} if is_exact else {0, counts[offset]})
        for offset in set(handed) & set(done):
            attempts.end(offset)
            counts[offset] = 0
        left = [offset for offset in handed if offset not in done]
        text = attempts.text(0, is_open=not leaves, in_hand=left)
        if leaves:
            continue
        if is_exact:
            counts |= {offset: counts[offset] + 1 for offset in left}
        else:
            counts, is_exact = dict.fromkeys(range(END), 1), True


def test_delivery_counts_are_encoded_by_offset():
    attempts = DeliveryCounts.read("open", 100, 107)
    assert [attempts.begin(offset) for offset in (100, 101, 107)] == [2, 2, 1]
    attempts.end(102)

    text = attempts.text(100, is_open=True, in_hand=[100, 101])

    assert text == "open 7 0+2:2 3+4:1"
    assert attempts.text(100, is_open=False, in_hand=[100, 101]) == "shut 7 0+2:1 3+4:1"
    assert attempts.text(107, is_open=True, in_hand=[]) == "open"
    assert (is_open(text), is_open("shut"), is_open("")) == (True, False, False)
    assert DeliveryCounts.read(text, 100, 200).begin(101) == 3
    assert DeliveryCounts.read("somebody else's note", 100, 200).begin(101) == 1


def test_encoded_delivery_counts_are_never_longer_than_kafka_accepts():
    every_other = DeliveryCounts({offset: 1 + offset % 2 for offset in range(4_000)}, 4_000)

    text = every_other.text(0, is_open=True, in_hand=[])

    assert len(text) < 3_600
    assert DeliveryCounts.read(text, 0, 0).begin(1) == 3
