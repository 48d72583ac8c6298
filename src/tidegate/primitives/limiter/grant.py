"""A permit in the hand of the caller."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.core.clock import monotonic_ms
from tidegate.core.errors import GrantVoid
from tidegate.core.priority import Priority


@dataclass(eq=False)
class Tally:
    """What became of the permits of one answer of the server."""

    used: int = 0
    void: int = 0
    """Those that ended before this process came to use them."""


@dataclass(eq=False)
class Grant:
    """The right to send one request of `units`, for a short time and once: `use` it right before its first byte leaves,
    when the connection is there.

    Its time runs from before the limiter was asked, on a clock that only goes forward, so it ends no later for the
    caller than for the server.
    """

    priority: Priority
    units: int
    ends_at_ms: float
    """On the monotonic clock of this process."""
    granted_at_ms: int
    """By the server's clock, in ms since the epoch: the order of all calls, whatever the processes' clocks say."""
    stopwatch: Callable[[], float] = field(default=monotonic_ms, repr=False)
    tally: Tally = field(default_factory=Tally, repr=False)
    on_late: "Callable[[Grant], None] | None" = field(default=None, repr=False)
    """Called when a request left after the end of its permit."""
    _used: bool = field(default=False, init=False, repr=False)

    @property
    def spends(self) -> str:
        """What the request is counted against, for metrics."""
        return self.priority

    @property
    def is_alive(self) -> bool:
        """Whether it could be used at this moment."""
        return not self._used and self.stopwatch() < self.ends_at_ms

    def use(self) -> None:
        """Spend it, or raise `GrantVoid`: then the call must not be made."""
        if self._used:
            raise GrantVoid("this permit was used already; each call needs its own")
        late_ms = self.stopwatch() - self.ends_at_ms
        if late_ms >= 0:
            self.tally.void += 1
            raise GrantVoid(f"this permit ended {late_ms:.0f} ms ago; take another")
        self._used = True
        self.tally.used += 1

    def sent(self) -> None:
        """Note that the request left. Where the permit had ended (the process was suspended since `use`), the request
        is counted again from now on."""
        if self.on_late is not None and self.stopwatch() >= self.ends_at_ms:
            self.on_late(self)
