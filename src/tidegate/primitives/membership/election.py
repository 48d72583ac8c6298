"""Leader election among the processes of a unit.

Leadership is valid as long as the leader's membership, so it needs no heartbeat of its own. Followers sleep until that
membership may have ended or the leader resigns.
"""

from dataclasses import dataclass
from typing import Any

from tidegate.core.arguments import require_name
from tidegate.core.clock import Clock, SystemClock, milliseconds
from tidegate.core.errors import LeaseLost
from tidegate.primitives.membership.membership import MembershipKeys
from tidegate.primitives.settings import MembershipSettings
from tidegate.primitives.wakeup import Wakeup
from tidegate.storage.valkey import Key, Unit, Valkey, lua_script


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
