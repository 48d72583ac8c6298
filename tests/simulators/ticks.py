"""Time for tests of simulators."""


class Ticks:
    """A monotonic clock that stands still until told."""

    def __init__(self) -> None:
        self._ns = 0

    def __call__(self) -> int:
        return self._ns

    def advance(self, seconds: float) -> None:
        self._ns += round(seconds * 1e9)
