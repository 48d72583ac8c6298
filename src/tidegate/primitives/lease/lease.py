"""A named lease: at most one owner at a time, for as long as it renews; whoever vanishes loses it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tidegate.core.arguments import require_name, require_positive
from tidegate.core.clock import Clock, SystemClock, milliseconds, monotonic_ms
from tidegate.core.errors import InvalidArgument, LeaseLost, LeaseTaken
from tidegate.primitives.lease.keys import LeaseKeys
from tidegate.storage.valkey import Key, Unit, Valkey, lua_script


@lua_script("acquire.lua")
async def _acquire(
    valkey: Valkey, *, lease: Key, fence: Key, owner: str, ttl_ms: int, now_ms: int | None
) -> list[Any]: ...


@lua_script("renew.lua")
async def _renew(valkey: Valkey, *, lease: Key, owner: str, held: int, ttl_ms: int, now_ms: int | None) -> int: ...


@lua_script("release.lua")
async def _release(valkey: Valkey, *, lease: Key, owner: str, held: int) -> int: ...


@dataclass(frozen=True)
class Held:
    """A lease as its holder knows it."""

    fence: int
    """Greater than that of every earlier holder. Whatever keeps the greatest it has seen can refuse all others."""
    ttl: timedelta
    until_ms: float
    """When it ends, by `monotonic_ms` of this process; counted from before we asked, so never later than it does."""

    @property
    def remaining_ms(self) -> float:
        """For how long it is certainly still ours, if this process was not suspended; 0 when it may have ended."""
        return max(self.until_ms - monotonic_ms(), 0)


class Lease:
    """One owner's access to one lease. An owner is one holder: what it holds already, it may acquire again."""

    def __init__(self, valkey: Valkey, unit: Unit, name: str, owner: str, clock: Clock | None = None) -> None:
        self.name, self.owner = name, require_name("owner", owner)
        self._valkey, self._keys, self._clock = valkey, LeaseKeys(unit, name), clock or SystemClock()

    async def acquire(self, ttl: timedelta) -> Held:
        """Hold it for `ttl` from now, or raise `LeaseTaken` saying when it can be free."""
        require_positive("ttl", milliseconds(ttl))
        asked_ms = monotonic_ms()
        reply = await _acquire(
            self._valkey,
            lease=self._keys.lease,
            fence=self._keys.fence,
            owner=self.owner,
            ttl_ms=milliseconds(ttl),
            now_ms=self._clock.pinned_ms,
        )
        match reply:
            case [b"held", fence]:
                return Held(fence, ttl, asked_ms + milliseconds(ttl))
            case [b"taken", remaining_ms]:
                raise LeaseTaken(self.name, remaining_ms=remaining_ms)
            case _:
                raise AssertionError(f"acquire.lua replied {reply!r}")

    async def renew(self, held: Held) -> Held:
        """Hold it for its whole time again, or raise `LeaseLost` when it ended, even if nobody took it since."""
        asked_ms = monotonic_ms()
        renewed = await _renew(
            self._valkey,
            lease=self._keys.lease,
            owner=self.owner,
            held=_fence_of(held),
            ttl_ms=milliseconds(held.ttl),
            now_ms=self._clock.pinned_ms,
        )
        if not renewed:
            raise LeaseLost(self.name)
        return Held(held.fence, held.ttl, asked_ms + milliseconds(held.ttl))

    async def release(self, held: Held) -> bool:
        """Give it up. False when it was no longer ours; another's lease is never touched."""
        return await _release(self._valkey, lease=self._keys.lease, owner=self.owner, held=_fence_of(held)) == 1


def _fence_of(held: Held) -> int:
    if held.fence < 1:
        raise InvalidArgument("held", held, "was not given by acquire")
    return held.fence
