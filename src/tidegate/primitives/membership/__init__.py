"""Membership of processes: each holds a lease and renews it while it lives; and the election of their leader.

Everything that a process holds depends on this lease: its messages and, for the leader, its leadership. `expire` finds
members that did not renew it, and says when to check again.

Leadership is valid as long as the leader's membership, so it needs no heartbeat of its own. Followers sleep until that
membership may have ended or the leader resigns.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tidegate.core.arguments import require_name
from tidegate.core.clock import Clock, SystemClock, milliseconds, monotonic_ms
from tidegate.core.errors import InvalidArgument, LeaseLost
from tidegate.primitives.settings import MembershipSettings
from tidegate.primitives.wakeup import Wakeup
from tidegate.storage.valkey import Key, ScriptCall, Unit, Valkey, lua_script, run_apart

__all__ = ["Elected", "Election", "Expiry", "Following", "Member", "Membership", "MembershipKeys", "MembershipSettings"]


class MembershipKeys:
    """Keys of the registered processes of one unit."""

    def __init__(self, unit: Unit) -> None:
        self.membership: Key = unit.key("membership")
        """zset: owner scored by the ms at which its lease ends."""
        self.leader: Key = unit.key("leader")
        """hash: owner, fence; valid until the lease of that owner ends."""
        self.fence: Key = unit.key("fence")
        """string: the greatest fencing token that was issued in this unit."""
        self.vacancy: Key = unit.key("vacancy")
        """list: at most one token, added by a leader that resigned or by a process that reported its death."""
        self.dead: Key = unit.key("dead")
        """set: owners that were declared dead, until their messages are taken over."""
        self.accepted_writes: Key = unit.key("accepted_writes")
        """hash: since, last: since when the server has accepted writes without a break."""
        self.wake: Key = unit.key("wake")
        """list: the wake-up of the unit's timekeeper, at most one token."""


T = TypeVar("T")

_MOST_LAPSED = 100
_ANSWER_WITHIN_S = 5.0


@lua_script("join.lua")
async def _join(valkey: Valkey, *, membership: Key, wake: Key, owner: str, ttl_ms: int, now_ms: int | None) -> int: ...


@lua_script("renew.lua")
async def _renew(
    valkey: Valkey, *, membership: Key, owner: str, known_ms: int, ttl_ms: int, now_ms: int | None
) -> list[Any]: ...


@lua_script("expire.lua")
async def _expire(
    valkey: Valkey,
    *,
    membership: Key,
    dead: Key,
    accepted_writes: Key,
    owner: str,
    limit: int,
    proof_ms: int,
    gap_ms: int,
    was_refused: int,
    ttl_ms: int,
    expected_ms: int,
    now_ms: int | None,
) -> list[Any]: ...


@lua_script("declare_dead.lua")
async def _declare_dead(
    valkey: Valkey, *, membership: Key, dead: Key, leader: Key, vacancy: Key, wake: Key, owner: str
) -> int: ...


@lua_script("known_dead.lua")
async def _known_dead(valkey: Valkey, *, membership: Key, dead: Key, limit: int) -> list[bytes]: ...


@lua_script("members.lua")
async def _members(valkey: Valkey, *, membership: Key, now_ms: int | None) -> list[Any]: ...


@dataclass(frozen=True)
class Member:
    """A registered process and its lease."""

    owner: str
    remaining_ms: int
    """Time until the lease ends; 0 or less if it has ended."""


@dataclass(frozen=True)
class Expiry:
    """Dead processes that `Membership.expire` found, and when to call it again."""

    owners: list[str]
    """Processes that were declared dead by this call; never the caller."""
    next_in_ms: int | None
    """When to call again; None if there is no other process, since `join` sends a wake-up."""


class Membership:
    """Membership of one process in its unit."""

    def __init__(
        self,
        valkey: Valkey,
        unit: Unit,
        owner: str,
        clock: Clock | None = None,
        settings: MembershipSettings | None = None,
        *,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        """`stopwatch` measures, in ms, how far the server's clock should have moved. Default: the monotonic clock of
        this process, or `clock` if that one sets the time of scripts."""
        self.owner, self.settings = require_name("owner", owner), settings or MembershipSettings()
        self._valkey, self._keys, self._clock = valkey, MembershipKeys(unit), clock or SystemClock()
        self._ttl_ms = milliseconds(self.settings.lease)
        self._known_ms = 0
        self._began_ms, self._ends_ms = math.inf, 0.0
        self._was_refused = False
        """Whether the last `expire` failed: the server may have refused other processes as well."""
        self._stopwatch = stopwatch or _stopwatch_of(self._clock)
        self._server_offset_ms: float | None = None
        """Server time minus stopwatch at the last reply that contained the server time."""

    @property
    def remaining_ms(self) -> float:
        """How long the lease is certainly valid, unless the process was suspended; 0 if it may have ended."""
        return max(self._ends_ms - monotonic_ms(), 0)

    def lasted_since(self, moment_ms: float) -> bool:
        """Whether the lease was certainly unbroken since this time of the monotonic clock."""
        return self._began_ms <= moment_ms and monotonic_ms() < self._ends_ms

    async def join(self) -> None:
        """Register this process, or register it again, and wake the timekeeper, which watches the leases."""
        asked_ms, self._known_ms = await self._ask(
            _join.bind(
                membership=self._keys.membership,
                wake=self._keys.wake,
                owner=self.owner,
                ttl_ms=self._ttl_ms,
                now_ms=self._clock.pinned_ms,
            )
        )
        # The new lease ends `ttl` after the server's time, so its end tells that time.
        self._note_server_time(self._known_ms - self._ttl_ms)
        # The start counts from the reply and the end from the request, so both are safe however slow the answer was.
        self._began_ms, self._ends_ms = monotonic_ms(), asked_ms + self._ttl_ms

    async def renew(self) -> bool:
        """Renew the lease. Returns False if it had ended in between: what the process held may have been taken over,
        so check before using it (a leader stands again to learn whether it still leads).

        Raises `LeaseLost` if the process was declared dead: what it held *was* taken over.
        """
        asked_ms, reply = await self._ask(
            _renew.bind(
                membership=self._keys.membership,
                owner=self.owner,
                known_ms=self._known_ms,
                ttl_ms=self._ttl_ms,
                now_ms=self._clock.pinned_ms,
            )
        )
        match reply:
            case [b"renewed" | b"resumed" as how, until_ms]:
                # The lease had a gap, by the clock of the server or by that of this process.
                if how == b"resumed" or asked_ms >= self._ends_ms:
                    self._began_ms = monotonic_ms()
                self._known_ms, self._ends_ms = until_ms, asked_ms + self._ttl_ms
                self._note_server_time(until_ms - self._ttl_ms)
                return how == b"renewed"
            case [b"removed"]:
                self._known_ms, self._ends_ms = 0, 0.0
                raise LeaseLost(f"membership of {self.owner}")
            case _:
                raise AssertionError(f"renew.lua replied {reply!r}")

    async def leave(self) -> None:
        """End the membership. Call it when the process holds nothing any more: no recovery follows."""
        await self._valkey.execute("ZREM", self._keys.membership, self.owner)
        self._known_ms, self._ends_ms = 0, 0.0

    async def expire(self) -> Expiry:
        """Declare other processes dead if their lease has ended, and return when to check again.

        A lease does not end merely because it could not be renewed. The server must have accepted writes without a
        break for `settings.proof`, a time in which a living process would have renewed it.
        """
        settings, was_refused = self.settings, self._was_refused
        self._was_refused = True  # unless the reply says otherwise
        owners, next_in_ms, server_ms = await _expire(
            self._valkey,
            membership=self._keys.membership,
            dead=self._keys.dead,
            accepted_writes=self._keys.accepted_writes,
            owner=self.owner,
            limit=_MOST_LAPSED,
            proof_ms=milliseconds(settings.proof),
            gap_ms=milliseconds(settings.gap),
            was_refused=int(was_refused),
            ttl_ms=self._ttl_ms,
            expected_ms=0 if self._server_offset_ms is None else round(self._stopwatch() + self._server_offset_ms),
            now_ms=self._clock.pinned_ms,
        )
        self._was_refused = False
        self._note_server_time(server_ms)
        return Expiry([owner.decode() for owner in owners], next_in_ms if next_in_ms >= 0 else None)

    async def declare_dead(self, owner: str) -> bool:
        """Report that another process is dead, known from the operating system, before its lease ends.

        The leader is woken to take over its messages; if it was the leader, a follower is woken. Returns False if the
        process is not registered: it left, or was reported before.
        """
        if require_name("owner", owner) == self.owner:
            raise InvalidArgument("owner", owner, "is this process; use leave")
        reply = await _declare_dead(
            self._valkey,
            membership=self._keys.membership,
            dead=self._keys.dead,
            leader=self._keys.leader,
            vacancy=self._keys.vacancy,
            wake=self._keys.wake,
            owner=owner,
        )
        return reply == 1

    async def known_dead(self) -> list[str]:
        """Processes that were declared dead and not forgotten since, without those that joined again."""
        owners = await _known_dead(
            self._valkey, membership=self._keys.membership, dead=self._keys.dead, limit=_MOST_LAPSED
        )
        return [owner.decode() for owner in owners]

    async def forget_dead(self, owner: str) -> None:
        """Remove a process from the list of dead processes, after its messages were taken over."""
        await self._valkey.execute("SREM", self._keys.dead, owner)

    async def members(self) -> list[Member]:
        """All registered processes, ordered by the end of their leases."""
        found = await _members(self._valkey, membership=self._keys.membership, now_ms=self._clock.pinned_ms)
        return [Member(owner.decode(), remaining_ms) for owner, remaining_ms in found]

    async def _ask(self, call: ScriptCall) -> tuple[float, Any]:
        """Send a join or renewal; return when it was sent, and the reply.

        It does not queue behind other commands of this process, and is sent again on another connection while there is
        no reply, because a connection with lost packets stays silent for seconds after the network is back. The script
        may run twice; the later run only extends the lease.
        """

        async def attempt() -> tuple[float, Any]:
            asked_ms = monotonic_ms()
            return asked_ms, await run_apart(self._valkey, call, within_s=_ANSWER_WITHIN_S)

        return await _first_result(attempt, every_s=self.settings.retry.total_seconds())

    def _note_server_time(self, server_ms: float) -> None:
        self._server_offset_ms = server_ms - self._stopwatch()


def _stopwatch_of(clock: Clock) -> Callable[[], float]:
    if clock.pinned_ms is None:
        return monotonic_ms
    # A manual clock also sets the time of scripts. Compared with the monotonic clock, it would look like a jump.
    return lambda: clock.pinned_ms or 0


async def _first_result(attempt: Callable[[], Awaitable[T]], *, every_s: float) -> T:
    """Start `attempt`, and again every `every_s` seconds while none has ended; return the first result.

    Raises the error of the last attempt if all have failed. Attempts in progress are cancelled at the end.
    """
    loop, running, failed = asyncio.get_running_loop(), set[asyncio.Future[T]](), list[BaseException]()
    try:
        while True:
            running.add(asyncio.ensure_future(attempt()))
            next_at = loop.time() + every_s
            while running and (left_s := next_at - loop.time()) > 0:
                ended, running = await asyncio.wait(running, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                # All of them are read: an error that is not would be logged with its traceback.
                errors = [(one, one.exception()) for one in ended]
                for one, error in errors:
                    if error is None:
                        return one.result()
                    failed.append(error)
            if not running:
                raise failed[-1]
    finally:
        for one in running:
            one.cancel()
        # Awaited, so that no attempt is left behind.
        await asyncio.gather(*running, return_exceptions=True)


@lua_script("stand.lua")
async def _stand(
    valkey: Valkey,
    *,
    membership: Key,
    leader: Key,
    fence: Key,
    vacancy: Key,
    accepted_writes: Key,
    owner: str,
    gap_ms: int,
    now_ms: int | None,
) -> list[Any]: ...


@lua_script("resign.lua")
async def _resign(valkey: Valkey, *, leader: Key, wake: Key, owner: str) -> int: ...


@dataclass(frozen=True)
class Elected:
    """This process leads, as long as its membership is unbroken."""

    fence: int
    """Greater than the token of any earlier leader; unchanged when the leader stands again."""


@dataclass(frozen=True)
class Following:
    """Another process is the leader."""

    remaining_ms: int
    """Minimum time for which its membership lasts. Standing before is useless unless it resigns."""


class Election:
    """Candidacy of one process, which must be a member of the same unit."""

    def __init__(
        self,
        valkey: Valkey,
        unit: Unit,
        owner: str,
        clock: Clock | None = None,
        settings: MembershipSettings | None = None,
    ) -> None:
        self.owner, self.settings = require_name("owner", owner), settings or MembershipSettings()
        self._valkey, self._keys, self._clock = valkey, MembershipKeys(unit), clock or SystemClock()
        self._vacancy = Wakeup(valkey, self._keys.vacancy)

    async def stand(self) -> Elected | Following:
        """Become the leader if there is none. Raises `LeaseLost` if the own membership has ended."""
        reply = await _stand(
            self._valkey,
            membership=self._keys.membership,
            leader=self._keys.leader,
            fence=self._keys.fence,
            vacancy=self._keys.vacancy,
            accepted_writes=self._keys.accepted_writes,
            owner=self.owner,
            gap_ms=milliseconds(self.settings.gap),
            now_ms=self._clock.pinned_ms,
        )
        match reply:
            case [b"elected", fence]:
                return Elected(fence)
            case [b"following", remaining_ms]:
                return Following(remaining_ms)
            case [b"absent"]:
                raise LeaseLost(f"membership of {self.owner}")
            case _:
                raise AssertionError(f"stand.lua replied {reply!r}")

    async def leader(self) -> str | None:
        """The process that was elected last and did not resign. It leads as long as it is a living member."""
        owner: bytes | None = await self._valkey.execute("HGET", self._keys.leader, "owner")
        return None if owner is None else owner.decode()

    async def resign(self) -> bool:
        """Resign as leader; one process that waits for a vacancy wakes at once. False if this process did not lead."""
        return await _resign(self._valkey, leader=self._keys.leader, wake=self._keys.vacancy, owner=self.owner) == 1

    async def wait_for_vacancy(self, within_s: float) -> bool:
        """Block until the leader resigned (True) or `within_s` seconds passed (False). Stand in either case."""
        return await self._vacancy.wait(within_s)
