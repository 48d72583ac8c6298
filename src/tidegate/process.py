"""A process of the deployment: the services of every process, and what the open systems contribute."""

from collections.abc import Callable, Mapping, Sequence

from tidegate.http.session_store import session_rules
from tidegate.primitives.membership import Election
from tidegate.primitives.stream import Stream
from tidegate.runtime.delivery import Handler
from tidegate.runtime.leadership import Heartbeat, Leadership
from tidegate.runtime.outbox_notifier import NotifiedRelay, OutboxNotifier
from tidegate.runtime.process_deaths import ProcessDeathWatcher
from tidegate.runtime.recoverer import EnqueueIntentMonitor, RecoverableWork, Recoverer, ValkeyRestartDetector
from tidegate.runtime.relay import Relay
from tidegate.runtime.retention import DeadLetterRule, Retention, RetentionRule, outbox_rules
from tidegate.runtime.service import Service
from tidegate.runtime.supervisor import Supervisor
from tidegate.runtime.timekeeper import DueSource, Timekeeper
from tidegate.system import Context, OpenSystem

__all__ = ["Supervisor", "build_process"]

_PROCESSES = "processes"
"""In the data folder, one folder for each unit, with the locks by which processes of one machine notice a death."""


def build_process(
    parts: Context,
    systems: Sequence[OpenSystem] = (),
    *,
    works: bool = True,
    handlers: Sequence[Handler] = (),
    services: Mapping[str, Service] | None = None,
    sources: Sequence[DueSource] = (),
    leader_services: Mapping[str, Service] | None = None,
    on_death: Sequence[Callable[[], object]] = (),
    streams: Sequence[Stream] = (),
    recoverable: Sequence[RecoverableWork] = (),
) -> Supervisor:
    """A process of the deployment: heartbeat, leader services while it leads, and what the `systems` contribute.

    With `works` it has the systems' workers too. The other arguments are contributions beside those of the systems; see
    `OpenSystem` for what each means (`streams` are recoverable work, too; `on_death` is `on_loss`). Services stop
    before the services that they depend on.
    """
    handlers = [*(each for system in systems for each in system.event_handlers()), *handlers]
    sources = [*(each for system in systems for each in system.due_sources()), *sources]
    on_death = [*(each for system in systems for each in system.on_loss()), *on_death]
    recoverable = [*(each for system in systems for each in system.recoverable()), *streams, *recoverable]
    leading, running = dict[str, Service](), dict[str, Service]()
    for system in systems:
        leading |= system.leader_services()
        workers = system.workers() if works else {}
        # A service that is among the workers is not added a second time.
        running |= {**workers, **{name: each for name, each in system.services().items() if name not in workers}}
    leading |= leader_services or {}
    running |= services or {}
    # Other processes may have the handlers for other kinds of events.
    relay = Relay(parts.database, handlers, only_handled=True)
    commits = parts.commits
    # A dead process may have committed events and jobs and died before it announced them.
    recoverer = Recoverer(
        parts.membership,
        [parts.jobs, parts.alarms, *recoverable],
        on_death=[relay.notify, *on_death],
        losses=lambda: parts.valkey.losses,
    )
    # A server that was unavailable may have lost wake-ups and jobs.
    restart_detector = ValkeyRestartDetector(parts.valkey, tell=[relay.notify, *on_death])
    intents = EnqueueIntentMonitor(parts.gate.intents, tell=on_death)
    retention = Retention(lambda: retention_rules(parts, systems), parts.settings.retention.every)
    ours = [parts.timers, parts.gate, recoverer, restart_detector, intents, retention]
    supervisor = Supervisor()
    # After a cut-off the process may still hold messages, so it has to count as dead.
    heartbeat = Heartbeat(parts.membership, may_leave=lambda: not supervisor.is_cut_off)
    for stream in (parts.jobs, *(each for each in recoverable if isinstance(each, Stream))):
        # Without the group, the server has lost its data, perhaps with the lease of this process.
        stream.on_missing = heartbeat.renew_now
    leadership = Leadership(
        Election(parts.valkey, parts.unit, parts.owner, settings=parts.membership.settings),
        heartbeat,
        {
            "timekeeper": Timekeeper(parts.timers.wakeup, [*ours, *sources], on_begin=recoverer.begin),
            "relay": NotifiedRelay(relay, commits),
            **leading,
        },
    )

    async def report_death(owner: str) -> None:
        await parts.membership.declare_dead(owner)
        # The dead process may have been the leader.
        leadership.reconsider()

    folder = parts.settings.data_dir / _PROCESSES / parts.unit.name
    deaths = ProcessDeathWatcher(folder, parts.owner, report_death, has_left=lambda: heartbeat.has_left)
    # Services stop in reverse order: the heartbeat renews the lease until all that depend on it have ended, and the
    # lock of this process is released last.
    supervisor.add("process_deaths", deaths)
    supervisor.add("heartbeat", heartbeat)
    supervisor.add("leadership", leadership)
    supervisor.add(
        "outbox notifier", OutboxNotifier(parts.database, commits, leads_here=lambda: leadership.fence is not None)
    )
    for name, service in running.items():
        supervisor.add(name, service)
    return supervisor


def retention_rules(parts: Context, systems: Sequence[OpenSystem] = ()) -> list[RetentionRule]:
    """What the leader deletes: events, sessions and dead letters, and what the systems say."""
    database, valkey, kept = parts.database, parts.valkey, parts.settings.retention
    return [
        *outbox_rules(database, handled=kept.handled_events, dead=kept.dead_letters),
        *session_rules(database),
        *(DeadLetterRule(valkey, each, kept.dead_letters, database.clock.now) for each in (parts.jobs, parts.alarms)),
        *(rule for system in systems for rule in system.retention_rules()),
    ]
