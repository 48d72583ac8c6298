"""How often messages were handed out to processes that died with them.

Kafka does not count deliveries, so we do, in the text that it keeps beside each commit. While all goes well that text
only says that the partition is in use: `open`, or `shut` by a member that left in order, and costs nothing. Whoever is
given a partition that a dead member left open does not know what it had in hand: everything up to the partition's end
counts as handed out once. From then on, until all of that is done, each message is noted before it is handed out:

    open 40 0+7:1 12:3      up to 40 messages behind the committed one are watched; the first 7 were handed out once,
                            the thirteenth three times

So one that kills every process it is given to is counted with each, whoever they are.
"""

import re
from collections.abc import Collection, Mapping

_MOST_WATCHED = 5_000
"""More than a process has in hand of one partition."""
_LONGEST = 3_500
"""Kafka takes 4096 bytes, unless it was told otherwise."""
_TEXT = re.compile(r"(open|shut)(?: (\d+)((?: \d+(?:\+\d+)?:\d+)*))?")
_RUN = re.compile(r"(\d+)(?:\+(\d+))?:(\d+)")


class Attempts:
    """Of one partition, for as long as it is ours."""

    def __init__(self, counts: Mapping[int, int] | None = None, watched_below: int = 0) -> None:
        self._counts, self._watched_below = dict(counts or {}), watched_below

    @classmethod
    def read(cls, text: str, committed: int, end: int) -> "Attempts":
        """From what stands beside a commit. `end`: of the partition, where its last owner did not shut it."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return cls()
        watched_below = committed + int(match[2] or 0)
        counts = {
            committed + int(start) + n: int(count)
            for start, length, count in _RUN.findall(match[3] or "")
            for n in range(int(length or 1))
        }
        if match[1] == "open":
            # Behind what was watched nobody noted anything: any of it may have been in hand.
            end = max(watched_below, min(end, committed + _MOST_WATCHED))
            counts |= dict.fromkeys(range(watched_below, end), 1)
            watched_below = end
        return cls(counts, watched_below)

    def is_watched(self, offset: int) -> bool:
        """Whether it must be noted that this one is handed out."""
        return offset < self._watched_below

    def begin(self, offset: int) -> int:
        """It is handed out; the how-maniest time."""
        times = self._counts.get(offset, 0) + 1
        if self.is_watched(offset):
            self._counts[offset] = times
        return times

    def end(self, offset: int) -> None:
        """It is done."""
        self._counts.pop(offset, None)

    def text(self, committed: int, *, is_open: bool, in_hand: Collection[int]) -> str:
        """What is to stand beside a commit. What a member that leaves in order had in hand does not count."""
        state = "open" if is_open else "shut"
        if self._watched_below <= committed:
            return state
        back = {} if is_open else dict.fromkeys(in_hand, 1)
        counts = {
            at: left for at, times in self._counts.items() if at >= committed and (left := times - back.get(at, 0))
        }
        runs = _runs(counts, committed)
        while sum(len(each) + 1 for each in runs) > _LONGEST:
            runs.pop()  # the lowest come first: those have waited longest
        return " ".join([state, str(self._watched_below - committed), *runs])


def is_open(text: str) -> bool:
    """Whether the partition's last owner did not say that it left."""
    return text.startswith("open")


def _runs(counts: Mapping[int, int], base: int) -> list[str]:
    runs: list[tuple[int, int, int]] = []
    for offset in sorted(counts):
        if runs and runs[-1][0] + runs[-1][1] == offset and runs[-1][2] == counts[offset]:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, runs[-1][2])
        else:
            runs.append((offset, 1, counts[offset]))
    return [f"{start - base}{f'+{length}' if length > 1 else ''}:{count}" for start, length, count in runs]
