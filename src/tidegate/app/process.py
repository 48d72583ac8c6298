"""A process of the deployment, put together from its parts."""

from collections.abc import Callable, Mapping, Sequence

from tidegate.app.parts import Parts
from tidegate.app.retention import retention_rules
from tidegate.primitives.membership import Election
from tidegate.primitives.stream import Stream
from tidegate.runtime.delivery import Handler
from tidegate.runtime.enqueue_intents import Promised
from tidegate.runtime.heartbeat import Heartbeat
from tidegate.runtime.leadership import Leadership
from tidegate.runtime.outbox_notifier import Announcer, AttentiveRelay
from tidegate.runtime.process_deaths import Neighbours
from tidegate.runtime.recoverer import Estate, Recoverer
from tidegate.runtime.relay import Relay
from tidegate.runtime.retention import Retention
from tidegate.runtime.service import Service
from tidegate.runtime.supervisor import Supervisor
from tidegate.runtime.timekeeper import DueSource, Timekeeper
from tidegate.runtime.valkey_restart import Reunion

_PROCESSES = "processes"
"""The folder, in the data folder, of the locks by which processes of one machine notice each other's death."""


def build_process(
    parts: Parts,
    *,
    handlers: Sequence[Handler] = (),
    services: Mapping[str, Service] | None = None,
    sources: Sequence[DueSource] = (),
    duties: Mapping[str, Service] | None = None,
    on_death: Sequence[Callable[[], object]] = (),
    streams: Sequence[Stream] = (),
    estates: Sequence[Estate] = (),
) -> Supervisor:
    """A process of the deployment: a sign of life, the leader's duties whenever it leads, and `services` of its own.

    Services stop before what they stand on. The leader keeps the time of timers, gate, dead processes and `sources`,
    delivers events to `handlers`, and has `duties` besides; what the dead held in `streams` and other `estates` goes to
    the living. `on_death` is called when a process died, the server was away, or somebody did not do what he promised:
    something may have been lost.
    """
    relay = Relay(parts.database, handlers)
    commits = parts.commits
    recoverer = Recoverer(
        parts.presence,
        [parts.jobs, parts.alarms, *streams, *estates],
        on_death=[relay.ring, *on_death],
        losses=lambda: parts.valkey.losses,
    )
    reunion = Reunion(parts.valkey, tell=[relay.ring, *on_death])
    promised = Promised(parts.gate.promises, tell=on_death)
    retention = Retention(lambda: retention_rules(parts), parts.settings.retention.every)
    ours = [parts.timers, parts.gate, recoverer, reunion, promised, retention]
    supervisor = Supervisor()
    heartbeat = Heartbeat(parts.presence, may_leave=lambda: not supervisor.is_cut_off)
    for stream in (parts.jobs, *streams):
        stream.on_missing = heartbeat.hasten
    leadership = Leadership(
        Election(parts.valkey, parts.unit, parts.owner, settings=parts.presence.settings),
        heartbeat,
        {
            "timekeeper": Timekeeper(parts.timers.doorbell, [*ours, *sources], on_begin=recoverer.begin),
            "relay": AttentiveRelay(relay, commits),
            **(duties or {}),
        },
    )

    async def report_death(owner: str) -> None:
        await parts.presence.declare_dead(owner)
        leadership.reconsider()

    folder = parts.settings.data_dir / _PROCESSES
    neighbours = Neighbours(folder, parts.owner, report_death, has_left=lambda: heartbeat.has_left)
    supervisor.add("neighbours", neighbours)
    supervisor.add("heartbeat", heartbeat)
    supervisor.add("leadership", leadership)
    supervisor.add("announcer", Announcer(parts.database, commits, leads_here=lambda: leadership.fence is not None))
    for name, service in (services or {}).items():
        supervisor.add(name, service)
    return supervisor
