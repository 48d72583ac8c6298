"""Reassigns the messages of dead processes, and triggers recovery after other losses.

A death is noticed when the lease ends, or when a process of the same machine reports it (see `process_deaths`). The
messages then go to other processes at once. A lease does not end while the server refuses all writes: see
`Membership.expire`. Messages that a living process holds for too long, because it hangs or lost them, are found by a
slower sweep of each stream.

A process that was declared dead may only be frozen, while a blocking read of a stream is still open. The server
delivers the next messages to the reader that waits longest, so the frozen process can receive the messages that were
just taken from it. Therefore its messages are taken over again: at once, and then with growing pauses, until every read
that was open at its death has ended.

If the server lost all data, processes go on reading until they notice that they are not registered. A process that dies
before it notices has no lease that could end. So a new leader waits for the length of a lease, in which each living
process notices the loss and joins again, and then takes over the messages of unregistered readers.

A server that lost the writes of its last second, or was restored from an old snapshot, still has all leases, which do
not show the loss. Therefore `ValkeyRestartDetector` triggers recovery whenever the server was unavailable and is back.
An enqueue intent that expires unconfirmed triggers recovery too (`EnqueueIntentMonitor`).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from tidegate.core.clock import milliseconds, monotonic_ms
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.gate import EnqueueIntents
from tidegate.primitives.membership import Expiry, Membership
from tidegate.storage.valkey import Valkey

log = get_logger(__name__)

T = TypeVar("T")

_FIRST_CHECK_MS = 1_000
_LAST_CHECK_MS = 300_000
"""No blocking read of a stream lasts longer."""


class RecoverableWork(Protocol):
    """Messages that processes hold: those of one stream, or of a changing set of streams."""

    async def take_over(self, owner: str) -> int:
        """Give the messages of the dead process `owner` to others. Returns how many there were. Idempotent."""
        ...

    async def sweep_idle(self) -> int:
        """Reassign messages that were held too long. Returns in how many ms the next sweep can be needed."""
        ...

    async def holders(self) -> set[str]:
        """The processes that hold messages."""
        ...


class Recoverer:
    """A due source of the timekeeper; each join of a process wakes it up."""

    def __init__(
        self,
        membership: Membership,
        work: Sequence[RecoverableWork],
        *,
        on_death: Sequence[Callable[[], object]] = (),
        losses: Callable[[], int] = lambda: 0,
        now_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        """The functions `on_death` are called for each process that died, since it may have left other work undone.

        `losses` counts how often the server was unavailable. It may have lost its last writes, so everything is swept.
        """
        self._membership, self._work = membership, tuple(work)
        self._on_death, self._losses, self._known_losses = tuple(on_death), losses, losses()
        self._now_ms = now_ms
        self._sweep_at_ms = [0.0 for _ in self._work]
        self._checks: dict[str, tuple[float, float]] = {}
        """Dead processes that may still receive messages: time of the next check, and the pause after it."""
        self._unregistered_at_ms: float | None = None
        self._lease_ms = milliseconds(membership.settings.lease)
        self._failing_since_ms: float | None = None

    def begin(self) -> None:
        """Prepare for a new term as leader: earlier observations may be outdated."""
        # After one lease, each living process has noticed that it is not registered, and has joined again.
        self._unregistered_at_ms = self._now_ms() + self._lease_ms
        self._delay_sweeps()

    async def fire(self) -> int | None:
        """Take over from dead processes and sweep; return in how many ms the next call is due.

        A failure with one stream does not stop the work on others. Its error is raised at the end, and a dead process
        with messages in that stream stays registered as dead, so that the next call continues with it.
        """
        failures: list[Exception] = []
        expiry = await self._expire()
        # Includes processes that could not be recovered before, and those that a neighbour reported.
        for owner in await self._membership.known_dead():
            if (messages := await self._recover(owner, failures)) is not None:
                # Last: if this process dies before, the next leader takes over from the same owner again.
                await self._membership.forget_dead(owner)
                if owner in expiry.owners:
                    log.warning("worker.lease_ended", owner=owner, messages=messages)
                else:
                    log.warning("worker.died", owner=owner, messages=messages)
        await self._check_dead_again(failures)
        await self._take_over_from_unregistered(failures)
        for n, work in enumerate(self._work):
            if self._now_ms() >= self._sweep_at_ms[n]:
                next_in_ms = await _attempt(work.sweep_idle(), failures)
                # After a failure it is None, and the sweep is due at once when `fire` is called again.
                self._sweep_at_ms[n] = self._now_ms() + (next_in_ms or 0)
        if failures:
            # The timekeeper repeats the call after a pause.
            raise failures[0]
        return self._earliest(expiry.next_in_ms)

    async def _expire(self) -> Expiry:
        try:
            expiry = await self._membership.expire()
        except Unavailable:
            # The outage counts from its first failure.
            if self._failing_since_ms is None:
                self._failing_since_ms = self._now_ms()
            raise
        self._note_outage(0.0 if self._failing_since_ms is None else self._now_ms() - self._failing_since_ms)
        self._failing_since_ms = None
        return expiry

    def _delay_sweeps(self) -> None:
        """Give workers time to settle first: while the server refused writes, every message was held for long."""
        self._sweep_at_ms = [self._now_ms() + self._lease_ms for _ in self._work]

    def _note_outage(self, lasted_ms: float) -> None:
        """Sweep everything after a loss; after a long outage, once living workers have settled."""
        losses = self._losses()
        # After a long outage, all messages look as if they were held too long.
        if lasted_ms >= self._lease_ms:
            self._delay_sweeps()
        elif losses != self._known_losses:
            self._sweep_at_ms = [0.0 for _ in self._work]
        self._known_losses = losses

    async def _recover(self, owner: str, failures: list[Exception]) -> int | None:
        """Reassign the messages of a dead process. Returns how many there were, None if some could not be taken."""
        before = len(failures)
        taken = [await _attempt(work.take_over(owner), failures) for work in self._work]
        # It stays registered as dead, so that the next call continues.
        if len(failures) > before:
            return None
        for notify in self._on_death:
            notify()
        # The first check is due at once: a frozen process may have a blocked read that gets the next messages.
        self._checks[owner] = (self._now_ms(), _FIRST_CHECK_MS)
        return sum(count or 0 for count in taken)

    async def _check_dead_again(self, failures: list[Exception]) -> None:
        """Take messages that dead processes received since. A process that joined again keeps them."""
        now_ms = self._now_ms()
        due = [owner for owner, (at_ms, _) in self._checks.items() if now_ms >= at_ms]
        alive = {member.owner for member in await self._membership.members()} if due else set[str]()
        for owner in due:
            _, pause_ms = self._checks.pop(owner)
            if owner in alive:
                continue
            for work in self._work:
                await _attempt(work.take_over(owner), failures)
            if pause_ms <= _LAST_CHECK_MS:
                self._checks[owner] = (now_ms + pause_ms, 2 * pause_ms)

    async def _take_over_from_unregistered(self, failures: list[Exception]) -> None:
        """Take messages of readers that are not registered; registered ones that died have a lease that ends."""
        if self._unregistered_at_ms is None or self._now_ms() < self._unregistered_at_ms:
            return
        before, registered = len(failures), {member.owner for member in await self._membership.members()}
        for work in self._work:
            holders = await _attempt(work.holders(), failures) or set[str]()
            for owner in sorted(holders - registered):
                taken = await _attempt(work.take_over(owner), failures)
                log.warning("worker.unregistered", owner=owner, messages=taken or 0)
        if len(failures) == before:
            self._unregistered_at_ms = None

    def _earliest(self, next_expiry_in_ms: int | None) -> int | None:
        now_ms = self._now_ms()
        times = [*self._sweep_at_ms, *(at_ms for at_ms, _ in self._checks.values())]
        if self._unregistered_at_ms is not None:
            times.append(self._unregistered_at_ms)
        waits = [max(0, round(at_ms - now_ms)) for at_ms in times]
        return min([*waits, *([] if next_expiry_in_ms is None else [next_expiry_in_ms])], default=None)


async def _attempt(work: Awaitable[T], failures: list[Exception]) -> T | None:
    try:
        return await work
    except Exception as error:  # raised at the end of `fire`, after the other streams
        failures.append(error)
        return None


class EnqueueIntentMonitor:
    """A due source of the timekeeper; new intents wake it up."""

    def __init__(self, intents: EnqueueIntents, *, tell: Sequence[Callable[[], object]]) -> None:
        """The functions of `tell` are called when an intent expired."""
        self._intents, self._tell = intents, tuple(tell)

    async def fire(self) -> int | None:
        """Call the functions if an intent expired; return in how many ms the next one expires."""
        due, next_in_ms = await self._intents.expired()
        if due:
            for notify in self._tell:
                notify()
        return next_in_ms

    def __repr__(self) -> str:
        return f"EnqueueIntentMonitor({self._intents!r})"


class ValkeyRestartDetector:
    """A due source of the timekeeper. Its wait for a wake-up ends when the connection breaks."""

    def __init__(self, valkey: Valkey, *, tell: Sequence[Callable[[], object]]) -> None:
        """The functions of `tell` are called when the server is back."""
        self._valkey, self._tell = valkey, tuple(tell)
        self._known = valkey.losses

    async def fire(self) -> int | None:
        """Call the functions if the server was unavailable since the last call and is back."""
        losses = self._valkey.losses
        if losses != self._known:
            # Raises while the server is unavailable, and `_known` stays: the call is repeated until it is back.
            await self._valkey.execute("PING")
            self._known = losses
            for notify in self._tell:
                notify()
        return None

    def __repr__(self) -> str:
        return f"ValkeyRestartDetector({self._valkey.address})"
