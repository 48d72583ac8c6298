"""One process of a deployment, with all that lives long: `-m tests.runtime.deployment URL LEASE_MS [FOLDER]`.

Processes with the same FOLDER notice each other's death at once. Prints its owner's name when it has joined, and
"leading" when it begins to lead.
"""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import uvloop

from tidegate.core.ids import new_owner
from tidegate.core.telemetry.logs import configure_logs
from tidegate.primitives.membership import Election, Membership, MembershipKeys, MembershipSettings
from tidegate.primitives.stream import Stream
from tidegate.primitives.timers import Timers
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.leadership import Heartbeat, Leadership
from tidegate.runtime.process_deaths import ProcessDeathWatcher
from tidegate.runtime.recoverer import Recoverer
from tidegate.runtime.supervisor import Supervisor
from tidegate.runtime.timekeeper import Timekeeper
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected


def jobs(valkey: Valkey) -> tuple[Stream, Timers]:
    unit = valkey.unit("jobs")
    stream = Stream(valkey, unit, "stream")
    return stream, Timers(valkey, unit, stream.keys.stream)


class Announcing:
    """Says that this process leads."""

    async def run(self, stopping: asyncio.Event) -> None:
        print("leading", flush=True)
        await stopping.wait()


class Reading:
    """A worker that waits for messages and leaves them unacknowledged, as one would that died at its work."""

    def __init__(self, stream: Stream, owner: str, heartbeat: Heartbeat) -> None:
        self._consumer, self._owner, self._heartbeat = stream.consumer(owner), owner, heartbeat

    async def run(self, stopping: asyncio.Event) -> None:
        await self._heartbeat.alive.wait()
        print(self._owner, flush=True)
        waiting = asyncio.create_task(self._read())
        await stopping.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await self._consumer.leave()

    async def _read(self) -> None:
        while True:
            await self._consumer.read(10, 60)


def supervised(valkey: Valkey, lease: timedelta, folder: Path | None) -> Supervisor:
    owner, unit = new_owner(), valkey.unit("processes")
    stream, timers = jobs(valkey)
    membership = Membership(valkey, unit, owner, settings=MembershipSettings(lease=lease, renew_every=lease * 0.7))
    heartbeat = Heartbeat(membership)
    services = {
        "timers": Timekeeper(timers.wakeup, [timers]),
        "recoverer": Timekeeper(Wakeup(valkey, MembershipKeys(unit).wake), [Recoverer(membership, [stream])]),
        "announcing": Announcing(),
    }
    leadership = Leadership(Election(valkey, unit, owner, settings=membership.settings), heartbeat, services)

    async def report_death(dead: str) -> None:
        await membership.declare_dead(dead)
        leadership.reconsider()

    supervisor = Supervisor()
    if folder is not None:
        supervisor.add(
            "process_deaths", ProcessDeathWatcher(folder, owner, report_death, has_left=lambda: heartbeat.has_left)
        )
    supervisor.add("heartbeat", heartbeat)
    supervisor.add("leadership", leadership)
    supervisor.add("reading", Reading(stream, owner, heartbeat))
    return supervisor


async def main(url: str, lease: timedelta, folder: Path | None) -> int:
    async with connected(url) as valkey:
        report = await supervised(valkey, lease, folder).run(handle_signals=True)
    return 0 if report.is_clean else 1


if __name__ == "__main__":
    configure_logs(level="warning")
    url, lease_ms, *more = sys.argv[1:]
    sys.exit(uvloop.run(main(url, timedelta(milliseconds=int(lease_ms)), Path(more[0]) if more else None)))
