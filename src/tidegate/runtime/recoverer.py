"""Gives what dead processes held to the living.

A process that died is noticed when its lease ends, or when a process of the same machine reports its death (see
`neighbours`), and its messages go to others at once. A lease does not end while the server refuses all writes: see
`Membership.expire`. Messages that a living process holds for too long (it hangs, or lost them) are found by a second,
slower look at each stream.

One that is only frozen may still wait at a stream, and the server gives what comes next to whoever waits longest: the
very messages that were taken from it. So the dead are looked at again, at once and at growing pauses, until such a wait
must have ended.

One that the server forgot with everything else goes on reading until it notices. If it dies before, its lease cannot
end, for it has none. So a new leader, who may be new because of that, waits until all the living must have joined
again, and then takes from strangers what they hold.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from tidegate.core.clock import milliseconds, monotonic_ms
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.membership import Expiry, Membership

log = get_logger(__name__)

T = TypeVar("T")

_FIRST_LOOK_MS = 1_000
_LAST_LOOK_MS = 300_000
"""No consumer waits longer at a stream."""


class RecoverableWork(Protocol):
    """Where processes hold something that must not die with them: a stream, or many of them that come and go."""

    async def take_over(self, owner: str) -> int:
        """Give what the dead process `owner` held to others; how many messages that were. Twice is harmless."""
        ...

    async def sweep_idle(self) -> int:
        """Look for what was held too long or was left behind; in how many ms the next look can be needed."""
        ...

    async def holders(self) -> set[str]:
        """The processes that hold something."""
        ...


class Recoverer:
    """A source of due things for the timekeeper at the wakeup of the membership's unit, which rings at each join."""

    def __init__(
        self,
        membership: Membership,
        estates: Sequence[RecoverableWork],
        *,
        on_death: Sequence[Callable[[], object]] = (),
        losses: Callable[[], int] = lambda: 0,
        now_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        """`on_death` are called for each process that died: it may have left more than messages.

        `losses` counts how often the server was away: it may have lost its last moments, so everything is looked at.
        """
        self._presence, self._estates = membership, tuple(estates)
        self._on_death, self._losses, self._known_losses = tuple(on_death), losses, losses()
        self._now_ms = now_ms
        self._sweep_at_ms = [0.0 for _ in self._estates]
        self._looks: dict[str, tuple[float, float]] = {}
        """The dead that may still be given something: when to look, and how long the pause after that is."""
        self._strangers_at_ms: float | None = None
        self._lease_ms = milliseconds(membership.settings.lease)
        self._failing_since_ms: float | None = None

    def begin(self) -> None:
        """A new lead begins: what was seen in an older one may have changed since."""
        self._strangers_at_ms = self._now_ms() + self._lease_ms
        self._delay_sweeps()

    async def fire(self) -> int | None:
        """Take over from the dead, look for what is held too long; say when to come back.

        An estate that fails does not keep the others from being served; its error is raised at the end, and a process
        that still has messages in it stays among the dead, so that the next call goes on with it.
        """
        failures: list[Exception] = []
        expiry = await self._expire()
        for owner in await self._presence.known_dead():
            if (messages := await self._recover(owner, failures)) is not None:
                await self._presence.forget_dead(owner)
                if owner in expiry.owners:
                    log.warning("worker.lease_ended", owner=owner, messages=messages)
                else:
                    log.warning("worker.died", owner=owner, messages=messages)
        await self._look_at_the_dead(failures)
        await self._look_at_strangers(failures)
        for n, estate in enumerate(self._estates):
            if self._now_ms() >= self._sweep_at_ms[n]:
                next_in_ms = await _attempt(estate.sweep_idle(), failures)
                self._sweep_at_ms[n] = self._now_ms() + (next_in_ms or 0)
        if failures:
            raise failures[0]
        return self._earliest(expiry.next_in_ms)

    async def _expire(self) -> Expiry:
        try:
            expiry = await self._presence.expire()
        except Unavailable:
            if self._failing_since_ms is None:
                self._failing_since_ms = self._now_ms()
            raise
        self._note_outage(0.0 if self._failing_since_ms is None else self._now_ms() - self._failing_since_ms)
        self._failing_since_ms = None
        return expiry

    def _delay_sweeps(self) -> None:
        """Give workers time to settle: while the server refused all writes, every message was held for long."""
        self._sweep_at_ms = [self._now_ms() + self._lease_ms for _ in self._estates]

    def _note_outage(self, lasted_ms: float) -> None:
        """After a loss everything is looked at; after a long outage, when those that live have settled."""
        losses = self._losses()
        if lasted_ms >= self._lease_ms:
            self._delay_sweeps()
        elif losses != self._known_losses:
            self._sweep_at_ms = [0.0 for _ in self._estates]
        self._known_losses = losses

    async def _recover(self, owner: str, failures: list[Exception]) -> int | None:
        """Give to others what a dead process held; how many messages that were, None where some are still there."""
        before = len(failures)
        taken = [await _attempt(estate.take_over(owner), failures) for estate in self._estates]
        if len(failures) > before:
            return None
        for notice in self._on_death:
            notice()
        self._looks[owner] = (self._now_ms(), _FIRST_LOOK_MS)
        return sum(count or 0 for count in taken)

    async def _look_at_the_dead(self, failures: list[Exception]) -> None:
        """Take from them what they were given since; one that lives again keeps it."""
        now_ms = self._now_ms()
        due = [owner for owner, (at_ms, _) in self._looks.items() if now_ms >= at_ms]
        alive = {member.owner for member in await self._presence.members()} if due else set[str]()
        for owner in due:
            _, pause_ms = self._looks.pop(owner)
            if owner in alive:
                continue
            for estate in self._estates:
                await _attempt(estate.take_over(owner), failures)
            if pause_ms <= _LAST_LOOK_MS:
                self._looks[owner] = (now_ms + pause_ms, 2 * pause_ms)

    async def _look_at_strangers(self, failures: list[Exception]) -> None:
        """Take from those who read and are not registered; those who are, and died, have a lease that ends."""
        if self._strangers_at_ms is None or self._now_ms() < self._strangers_at_ms:
            return
        before, registered = len(failures), {member.owner for member in await self._presence.members()}
        for estate in self._estates:
            holders = await _attempt(estate.holders(), failures) or set[str]()
            for owner in sorted(holders - registered):
                taken = await _attempt(estate.take_over(owner), failures)
                log.warning("worker.unregistered", owner=owner, messages=taken or 0)
        if len(failures) == before:
            self._strangers_at_ms = None

    def _earliest(self, next_expiry_in_ms: int | None) -> int | None:
        now_ms = self._now_ms()
        times = [*self._sweep_at_ms, *(at_ms for at_ms, _ in self._looks.values())]
        if self._strangers_at_ms is not None:
            times.append(self._strangers_at_ms)
        waits = [max(0, round(at_ms - now_ms)) for at_ms in times]
        return min([*waits, *([] if next_expiry_in_ms is None else [next_expiry_in_ms])], default=None)


async def _attempt(work: Awaitable[T], failures: list[Exception]) -> T | None:
    try:
        return await work
    except Exception as error:  # told to the timekeeper once the others have been served
        failures.append(error)
        return None
