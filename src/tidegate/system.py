"""All extension points: what a system is, what it is given, and what it contributes to a process.

A system is a plug-in. It is one class, registered under its name in the entry point group `tidegate.systems`:

    class LinkChecker(System):
        name = "link_checker"
        sections = {"link_checker": "link_checker.settings:LinkCheckerSettings"}
        commands = {"links": Command("link_checker.commands:app", "Check links.")}

        @asynccontextmanager
        async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
            from link_checker.service import OpenLinkChecker

            yield OpenLinkChecker(context)

The class only declares. Its module is imported for a list of commands, so it imports nothing else at the top; `open`
imports what it needs. A process opens the systems that it uses, and asks each `OpenSystem` for its contributions: a
worker process for `workers`, a process that serves HTTP for `api` and `topics`, every process for the leader's part,
since every process can become the leader.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, TypeVar

from tidegate.core.errors import ContractBroken
from tidegate.core.plugins import installed_systems, load_system

if TYPE_CHECKING:
    import msgspec
    from litestar.handlers import HTTPRouteHandler
    from pydantic import BaseModel

    from tidegate.core.findings import Finding
    from tidegate.http.access import Access
    from tidegate.http.events import ListenerLimit
    from tidegate.http.raw_handlers import RawHandler
    from tidegate.http.settings import HttpSettings
    from tidegate.primitives.circuit_breaker import CircuitBreaker
    from tidegate.primitives.gate import Gate
    from tidegate.primitives.membership import Membership
    from tidegate.primitives.stream import Stream
    from tidegate.primitives.timers import Timers
    from tidegate.primitives.wakeup import Wakeup
    from tidegate.runtime.change_feed import ChangeFeed
    from tidegate.runtime.delivery import Handler
    from tidegate.runtime.recoverer import RecoverableWork
    from tidegate.runtime.retention import RetentionRule
    from tidegate.runtime.service import Service
    from tidegate.runtime.timekeeper import DueSource
    from tidegate.settings import Settings
    from tidegate.storage.sql import Database
    from tidegate.storage.valkey import Unit, Valkey

__all__ = [
    "Api",
    "Command",
    "Context",
    "DeadLetterStore",
    "DeadLetterSummary",
    "Gauges",
    "HttpContext",
    "OpenSystem",
    "Sample",
    "SeriesSource",
    "System",
    "Topic",
    "enabled_systems",
    "find_system",
]

T = TypeVar("T")
S = TypeVar("S", bound="BaseModel")


class Command(NamedTuple):
    """A command that is imported when it is run.

    Example:
        Command("link_checker.commands:check", "Check the links of a page.")
    """

    place: str
    """`module:name`; the name is that of a function, or of a `Typer` with subcommands."""
    summary: str
    """Its description in the list of commands."""


@dataclass(frozen=True)
class Context:
    """What a process has open: its settings, its connections, and the primitives on them."""

    settings: Settings
    owner: str
    """Name of this process, unique in the deployment."""
    valkey: Valkey
    database: Database
    unit: Unit
    membership: Membership
    jobs: Stream
    """Jobs that have their permit."""
    gate: Gate
    alarms: Stream
    """Timers that have come due."""
    timers: Timers
    shared: dict[type, object] = field(default_factory=dict[type, object])
    """What systems offer to systems that are opened after them, by class; see `share` and `get`."""

    @property
    def commits(self) -> Wakeup:
        """Wakes the leader's relay after a commit with events."""
        from tidegate.primitives.wakeup import Wakeup

        return Wakeup(self.valkey, self.unit.key("commits"))

    def section(self, kind: type[S]) -> S:
        """The settings of a system: `context.section(LinkCheckerSettings)`."""
        return self.settings.section(kind)

    def share(self, value: object) -> None:
        """Offer an object to systems that are opened later; one of each class."""
        self.shared[type(value)] = value

    def get(self, kind: type[T]) -> T:
        """An object that a system which was opened before shares. Raises `ContractBroken` when there is none."""
        value = self.shared.get(kind)
        if not isinstance(value, kind):
            raise ContractBroken(f"no open system shares a {kind.__name__}; is its system enabled, or in `requires`?")
        return value


@dataclass(frozen=True)
class HttpContext:
    """What routes of a process share."""

    settings: HttpSettings
    access: Access
    """Keys, sessions and the limits of wrong keys."""
    seats: ListenerLimit
    """Limits how many event streams are open in this process."""


def _nothing_to_close() -> None:
    pass


@dataclass(frozen=True)
class Api:
    """What a process answers over HTTP."""

    routes: Sequence[HTTPRouteHandler] = ()
    """Made by `tidegate.http.routes.route`."""
    close: Callable[[], None] = _nothing_to_close
    """Ends waits and event streams of these routes; called when the server stops."""
    raw: Mapping[str, RawHandler] = field(default_factory=dict[str, "RawHandler"])
    """ASGI handlers of frequent requests, by prefix of addresses; see `tidegate.http.raw_handlers`."""
    absent: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why there is nothing under a prefix of addresses, for instance because no kind is configured."""


@dataclass(frozen=True)
class Topic:
    """What the dashboard shows live. It is read only while a client watches it, once for all clients."""

    name: str
    read: Callable[[], Awaitable[msgspec.Struct]]
    follows_runs: bool = False
    """Whether it is read again when a run changed."""
    gap: timedelta = timedelta(seconds=1)
    """It is read no more often than this."""
    silence: timedelta = timedelta(seconds=2)
    """It is read again after this long, even if no change was reported."""
    within: timedelta = timedelta(seconds=5)
    """A read that takes longer is reported as unavailable; its result is shown when it arrives."""


class Sample(NamedTuple):
    """A value with its unit."""

    value: float
    unit: str


@dataclass(frozen=True)
class SeriesSource:
    """Values of which the dashboard records a history and draws charts."""

    name: str
    """What is reported as unknown when they cannot be read."""
    read: Callable[[], Awaitable[Mapping[str, Sample]]]
    """Reads the values, by name of the series: `snapshots/rate/all`."""
    feed: ChangeFeed[str] | None = None
    """Reports changes of the values; a sample follows each."""
    server: str = "the database"
    """What is unavailable when they cannot be read."""


class DeadLetterSummary(NamedTuple):
    """A dead letter without its contents."""

    id: str
    """Unique among the dead letters of its kind."""
    source: str
    """Where it failed: a stream, a campaign, a host. Empty if there is nothing to tell apart."""
    name: str
    """What failed there: a kind of event, of subject or of page."""
    reason: str
    at: datetime


@dataclass(frozen=True)
class DeadLetterStore:
    """One kind of dead letters of a system: counted, listed, replayed and discarded."""

    kind: str
    """Name in the API and in the dashboard's addresses (`#/dead/campaigns`)."""
    label: str
    """What the dashboard calls them: "12 dead letters of campaigns"."""
    count: Callable[[], Awaitable[Mapping[str, int]]]
    """Counts by part (campaign, stream, ...); parts without dead letters may be left out."""
    page: Callable[[str | None, int], Awaitable[Sequence[DeadLetterSummary]]]
    """Dead letters after the one with this id (None: from the first), in a fixed order, at most so many. A dead letter
    that was replayed and failed again does not come before its old place."""
    replay: Callable[[Sequence[str]], Awaitable[int]]
    """Replays dead letters and returns how many. Unknown ids are ignored; a crash leaves the others as they are."""
    discard: Callable[[Sequence[str]], Awaitable[int]] | None = None
    """Discards dead letters in the same way; None if that would leave other work unfinished."""
    server: str = "the database"
    """What is unavailable when they cannot be read."""


class Gauges(Protocol):
    """Metrics that are computed when they are scraped."""

    async def refresh(self) -> None:
        """Compute them now. Never raises: what cannot be computed becomes NaN (`runtime.scrape_gauges`)."""
        ...


class OpenSystem:
    """What an open system contributes to a process. Every method may be left out."""

    def workers(self) -> Mapping[str, Service]:
        """Services of a worker process (`tidegate up`, `tidegate work`)."""
        return {}

    def services(self) -> Mapping[str, Service]:
        """Services of every process that opens the system; a worker process has the one of `workers` with this name."""
        return {}

    def leader_services(self) -> Mapping[str, Service]:
        """Services of the leader; they run in one process of the deployment at a time."""
        return {}

    def due_sources(self) -> Sequence[DueSource]:
        """What the leader's timekeeper fires at due times."""
        return ()

    def event_handlers(self) -> Sequence[Handler]:
        """Handlers of outbox events; the leader's relay calls them."""
        return ()

    def recoverable(self) -> Sequence[RecoverableWork]:
        """Streams and other work that the leader takes from dead processes."""
        return ()

    def on_loss(self) -> Sequence[Callable[[], object]]:
        """Called in the leader when something may have been lost: a process died, or a server was away."""
        return ()

    def retention_rules(self) -> Sequence[RetentionRule]:
        """What the leader deletes when it is too old. Tables without a rule stand in `System.kept_tables`."""
        return ()

    def api(self, http: HttpContext) -> Api:
        """HTTP routes; called once, in a process that serves."""
        del http
        return Api()

    def receiver(self) -> Api | None:
        """Routes that other services call with signed requests; `tidegate serve --only NAME` serves no others.

        None if the system has none. Raises `InvalidSettings` if a setting is missing.
        """
        return None

    def topics(self) -> Sequence[Topic]:
        """Live topics of the dashboard; called once, in a process that serves."""
        return ()

    def series(self) -> Sequence[SeriesSource]:
        """Values with a history on the dashboard."""
        return ()

    def breakers(self) -> Sequence[CircuitBreaker]:
        """Circuit breakers of this process; the dashboard shows their state."""
        return ()

    def dead_letters(self) -> Sequence[DeadLetterStore]:
        """Dead letters that operators list, replay and discard."""
        return ()

    def gauges(self) -> Sequence[Gauges]:
        """Metrics that are computed when they are scraped."""
        return ()


class System:
    """A plug-in. Subclasses set the attributes and override `open`.

    Example:
        class FlagSystem(System):
            name = "flags"
            sections = {"flags": "flags.settings:FlagSettings"}

            @asynccontextmanager
            async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
                yield OpenSystem()
    """

    name: ClassVar[str]
    """The name of the entry point, of the setting `systems`, and of the folder."""
    requires: ClassVar[Sequence[str]] = ()
    """Systems that are opened before this one."""
    sections: ClassVar[Mapping[str, str]] = {}
    """Sections of the settings: name to `module:Class` of a frozen pydantic model with a default for every field."""
    commands: ClassVar[Mapping[str, Command]] = {}
    """Commands of `tidegate`: name to place and summary."""
    sources: ClassVar[Mapping[str, str]] = {}
    """Sources of runs: name to `module:Class` of a `SourcePlugin`."""
    kind_names: ClassVar[str] = ""
    """`module:name` of a mapping with what people call the kinds of jobs of its sources."""
    tables: ClassVar[str] = ""
    """`module:metadata` of a system in another distribution: its tables. Missing ones are created when the database is
    migrated; existing ones are never altered or dropped. Their names begin with the name of the system. Systems of this
    distribution share one history of migrations instead."""
    metrics: ClassVar[str] = ""
    """The module that defines its metrics, all in `tidegate.core.telemetry.metrics.REGISTRY`. It is imported when the
    system is opened, so that its counters are exported from zero."""
    kept_tables: ClassVar[Mapping[str, str]] = {}
    """Tables without a retention rule, and why they do not grow without bound."""

    encrypted_tables: ClassVar[Sequence[str]] = ()
    """Tables with secrets that are encrypted with the key of the installation."""

    def checks(self, settings: Settings) -> Sequence[Callable[[], object]]:
        """Checks that run before the schema of the database is migrated, since a migration cannot be undone.

        Each is called, and awaited where that is needed; it raises a `TidegateError` when the system cannot be opened.
        """
        del settings
        return ()

    def doctor_checks(self) -> Mapping[str, Callable[[Settings], AsyncIterator[Finding]]]:
        """Checks of `tidegate doctor`, by the name that is reported when a check does not end in time."""
        return {}

    def open(self, context: Context) -> AbstractAsyncContextManager[OpenSystem]:
        """The system, open for the length of a block."""
        del context
        return _empty()


@asynccontextmanager
async def _empty() -> AsyncGenerator[OpenSystem]:
    yield OpenSystem()


def find_system(name: str) -> System:
    """The installed system of this name; raises `InvalidSettings` when there is none."""
    system: System = load_system(name)
    return system


def enabled_systems(settings: Settings, names: Sequence[str] | None = None) -> list[System]:
    """Systems in the order in which they are opened: those of `names`, else of the settings, with what they require.

    Imports only these. Raises `InvalidSettings` for a name that is not installed.
    """
    if names is None:
        names = settings.systems
    if names is None:
        names = list(installed_systems())
    ordered: dict[str, System] = {}

    def add(name: str, required_by: tuple[str, ...]) -> None:
        if name in required_by:
            raise ContractBroken(f"systems require each other: {' -> '.join((*required_by, name))}")
        if name not in ordered:
            system = find_system(name)
            for each in system.requires:
                add(each, (*required_by, name))
            ordered[name] = system

    for name in names:
        add(name, ())
    return list(ordered.values())
