"""Permits that the limiter has granted."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.core.clock import monotonic_ms
from tidegate.core.errors import GrantVoid
from tidegate.core.priority import Priority


@dataclass(eq=False)
class Tally:
    """How many permits of one answer of the server were used."""

    used: int = 0
    void: int = 0
    """Permits that expired before they were used."""


@dataclass(eq=False)
class Grant:
    """The right to send one request of `units`, once and within a short time.

    Call `use` right before the first byte is sent, when the connection is open. The time counts from before the server
    was asked, on a monotonic clock, so the permit expires for the caller no later than for the server.
    """

    priority: Priority
    units: int
    ends_at_ms: float
    """On the monotonic clock of this process."""
    granted_at_ms: int
    """Server time of the grant, in ms since the epoch. It orders calls independently of the processes' clocks."""
    stopwatch: Callable[[], float] = field(default=monotonic_ms, repr=False)
    tally: Tally = field(default_factory=Tally, repr=False)
    on_late: "Callable[[Grant], None] | None" = field(default=None, repr=False)
    """Called when a request was sent after its permit expired."""
    _used: bool = field(default=False, init=False, repr=False)

    @property
    def spends(self) -> str:
        """What the request is counted against, for metrics."""
        return self.priority

    @property
    def is_alive(self) -> bool:
        """Whether the permit can be used now."""
        return not self._used and self.stopwatch() < self.ends_at_ms

    def use(self) -> None:
        """Use the permit. Raises `GrantVoid` if it expired or was used; then the call must not be made."""
        if self._used:
            raise GrantVoid("this permit was used already; each call needs its own")
        late_ms = self.stopwatch() - self.ends_at_ms
        if late_ms >= 0:
            self.tally.void += 1
            raise GrantVoid(f"this permit expired {late_ms:.0f} ms ago; take another")
        self._used = True
        self.tally.used += 1

    def sent(self) -> None:
        """Record that the request was sent. If the permit had expired (the process was suspended since `use`), the
        request is counted again, at the current time."""
        if self.on_late is not None and self.stopwatch() >= self.ends_at_ms:
            self.on_late(self)
