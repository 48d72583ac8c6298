"""Who is there: the processes of the deployment, the one that leads, and whether anybody works."""

import asyncio
from collections.abc import Sequence

import msgspec

from tidegate.primitives.membership import Election
from tidegate.primitives.stream import Stream
from tidegate.primitives.stream.message import StreamStatus
from tidegate.primitives.stream.stream import is_waypoint, owner_of
from tidegate.system import Context


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """A process that is alive."""

    owner: str
    """Its name among all that ever ran."""
    host: str
    pid: int | None
    lease_ms: int
    """In how many milliseconds it counts as dead, unless it gives another sign of life."""
    is_leader: bool
    is_here: bool
    """Whether it is the one that answers."""


class ProcessList(msgspec.Struct, frozen=True, kw_only=True):
    """All of them."""

    members: list[ProcessView]
    jobs: list[StreamStatus]
    """Of the streams that workers take jobs from, one for each source."""

    @property
    def leader(self) -> str | None:
        """The one that leads; None where none does."""
        return next((member.owner for member in self.members if member.is_leader), None)

    @property
    def has_workers(self) -> bool:
        """Whether some process takes jobs; where they leave by another queue, nobody here can tell, and is content."""
        alive, names = (
            {member.owner for member in self.members},
            [each.name for status in self.jobs for each in status.consumers],
        )
        return any(is_waypoint(name) or owner_of(name) in alive for name in names)


class ProcessReader:
    """Reads the members of the deployment, and the consumers of the `streams` of jobs."""

    def __init__(self, parts: Context, streams: Sequence[Stream]) -> None:
        self._parts, self._streams = parts, streams
        self._election = Election(parts.valkey, parts.unit, parts.owner)

    async def read(self) -> ProcessList:
        """Who is there now."""
        members, leader, jobs = await asyncio.gather(
            self._parts.membership.members(),
            self._election.leader(),
            asyncio.gather(*(stream.status() for stream in self._streams)),
        )
        alive = [self._view(member.owner, member.remaining_ms, leader) for member in members if member.remaining_ms > 0]
        return ProcessList(members=sorted(alive, key=lambda each: each.owner), jobs=jobs)

    def _view(self, owner: str, remaining_ms: int, leader: str | None) -> ProcessView:
        host, _, rest = owner.partition(".")
        pid = rest.partition(".")[0]
        return ProcessView(
            owner=owner,
            host=host,
            pid=int(pid) if pid.isdecimal() else None,
            lease_ms=remaining_ms,
            is_leader=owner == leader,
            is_here=owner == self._parts.owner,
        )
