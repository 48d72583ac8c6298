"""The periods in which callers were asked to wait."""


class Pauses:
    """Those that are not over. One begins when the answer that asks for it goes out, which may be later than now."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def add(self, from_us: int, until_us: int) -> None:
        """One more; those that overlap are one, so that a flood of refusals takes no room."""
        rest: list[tuple[int, int]] = []
        for begin, end in self._spans:
            if begin < until_us and from_us < end:
                from_us, until_us = min(begin, from_us), max(end, until_us)
            else:
                rest.append((begin, end))
        self._spans = [*rest, (from_us, until_us)]

    def left_us(self, at_us: int, leeway_us: int) -> int:
        """How much of a pause is left; 0: none is in force, or it has only just begun or nearly ended."""
        if not self._spans:
            return 0
        self._spans = [span for span in self._spans if span[1] > at_us]
        return max(
            (end - at_us for begin, end in self._spans if begin + leeway_us < at_us < end - leeway_us), default=0
        )
