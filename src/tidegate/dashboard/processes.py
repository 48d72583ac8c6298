"""Lists the processes of the deployment, with the leader and the workers."""

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
    """The unique name of the process."""
    host: str
    pid: int | None
    lease_ms: int
    """Remaining milliseconds of its lease; without a heartbeat, it counts as dead afterwards."""
    is_leader: bool
    is_here: bool
    """Whether it is the process that answers this request."""


class ProcessList(msgspec.Struct, frozen=True, kw_only=True):
    """All processes that are alive."""

    members: list[ProcessView]
    jobs: list[StreamStatus]
    """State of the job streams, one per source."""

    @property
    def leader(self) -> str | None:
        """The name of the leader; None if there is none."""
        return next((member.owner for member in self.members if member.is_leader), None)

    @property
    def has_workers(self) -> bool:
        """Whether a process consumes jobs. True if another queue delivers jobs, because its consumers are unknown."""
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
        """Read the current members."""
        members, leader, jobs = await asyncio.gather(
            self._parts.membership.members(),
            self._election.leader(),
            asyncio.gather(*(stream.status() for stream in self._streams)),
        )
        # A member with an ended lease is removed by the leader a little later.
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
