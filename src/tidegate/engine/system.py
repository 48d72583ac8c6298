"""Declares the collection engine to the application: shared parts of all sources, and sources of the installation."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from tidegate.system import Api, Command, Context, DeadLetterStore, Gauges, HttpContext, OpenSystem, System

if TYPE_CHECKING:
    from tidegate.core.findings import Finding
    from tidegate.engine.collection import Collection
    from tidegate.engine.source_cell import SourceCell
    from tidegate.runtime.retention import RetentionRule
    from tidegate.runtime.service import Service
    from tidegate.settings import Settings

_COMMANDS = "tidegate.engine.commands"


class CollectionSystem(System):
    """The parts that all sources share: runs, jobs, schedules, credentials and reports."""

    name = "collection"
    sections = {
        "aws": "tidegate.engine.sqs.settings:AwsSettings",
        "collect": "tidegate.engine.settings:CollectSettings",
        "upstream": "tidegate.engine.upstream.settings:UpstreamSettings",
    }
    metrics = "tidegate.engine.metrics"
    commands = {
        "collect": Command(f"{_COMMANDS}.collect:collect", "Collect data from GitHub or from another source."),
        "credentials": Command(f"{_COMMANDS}.credentials:app", "Manage the tokens and apps that requests use."),
        "export": Command(f"{_COMMANDS}.export:export", "Export documents as Parquet, CSV or JSON Lines."),
        "jobs": Command(f"{_COMMANDS}.jobs:app", "Show single jobs and their requests."),
        "report": Command(f"{_COMMANDS}.report:app", "Print reports: failures, waiting and slow jobs."),
        "runs": Command(f"{_COMMANDS}.runs:app", "List, show, cancel and retry runs."),
        "schedules": Command(f"{_COMMANDS}.schedules:app", "Manage schedules that start runs."),
        "subjects": Command(f"{_COMMANDS}.subjects:subjects", "List what was collected, with last runs and due times."),
        "sync": Command(f"{_COMMANDS}.sync:sync", "Keep tables in DuckDB, PostgreSQL or files up to date."),
    }
    kept_tables = {
        "collection_places": "one row for each source",
        "collection_schedules": "deleted by `tidegate schedules remove`",
        "credential_allowances": "deleted with their last credential",
        "credentials": "deleted by `tidegate credentials remove`",
        "documents": "the result of collections: as many as the upstream has listed",
    }

    def checks(self, settings: "Settings") -> Sequence[Callable[[], object]]:
        """Check that the AWS library is installed if the settings need it."""
        from tidegate.engine.sqs.opening import require_library
        from tidegate.engine.sqs.settings import AwsSettings

        return [lambda: require_library(settings.section(AwsSettings))]

    def doctor_checks(self) -> "Mapping[str, Callable[[Settings], AsyncIterator[Finding]]]":
        """Check of the SQS queues."""
        from tidegate.engine import doctor

        return {"queues": doctor.queues}

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """Open the engine that collects data, without sources: each system adds its own (`OpenSource`)."""
        from tidegate.engine.collection import open_empty_collection
        from tidegate.engine.sqs.opening import open_aws
        from tidegate.engine.sqs.settings import AwsSettings
        from tidegate.primitives.stream import TicketedStream

        triggers_only = context.section(AwsSettings).model_copy(update={"task_queue_url": None})
        async with (
            open_empty_collection(context) as collection,
            open_aws(triggers_only, TicketedStream(context.valkey, context.jobs), context.owner) as aws,
        ):
            context.share(collection)
            yield OpenCollection(collection, aws.inbox(collection.trigger))


class OpenCollection(OpenSystem):
    """The contributions of the collection to a process, independent of its sources."""

    def __init__(self, collection: "Collection", triggers: "Mapping[str, Service]") -> None:
        from tidegate.engine.cells import CellNotifier

        self.collection = collection
        self._triggers, self._notifier = triggers, CellNotifier(collection.parts)

    def services(self) -> "Mapping[str, Service]":
        """The notifier of cells, and the queue of triggers."""
        return {"cell notifier": self._notifier, **self._triggers}

    def on_loss(self) -> Sequence[Callable[[], object]]:
        """Wake the leaders of cells that have events to handle."""
        return [self._notifier.check]

    def retention_rules(self) -> "Sequence[RetentionRule]":
        """Retention rules for runs, cursors and firings."""
        from tidegate.engine.source_cell import engine_rules

        return engine_rules(self.collection.parts)

    def api(self, http: HttpContext) -> Api:
        """The HTTP routes of runs, jobs, schedules, credentials, quotas, reports and dead letters."""
        from tidegate.engine.api.credentials import CredentialRoutes
        from tidegate.engine.api.dead_letters import DeadLetterRoutes
        from tidegate.engine.api.jobs import JobRoutes
        from tidegate.engine.api.quotas import QuotaRoutes
        from tidegate.engine.api.reports import ReportRoutes
        from tidegate.engine.api.run_details import RunDetailReader
        from tidegate.engine.api.runs import RunFeed, RunRoutes
        from tidegate.engine.api.schedules import ScheduleRoutes
        from tidegate.engine.api.subjects import SubjectRoutes

        collection = self.collection
        details = RunDetailReader(collection)
        feed = RunFeed(details.detail, collection.change_feed, http.seats)
        routes = [
            RunRoutes(collection, details, feed),
            JobRoutes(collection),
            ScheduleRoutes(collection),
            SubjectRoutes(collection),
            CredentialRoutes(collection),
            QuotaRoutes(collection),
            ReportRoutes(collection),
            DeadLetterRoutes(collection),
        ]
        return Api(routes=[route for each in routes for route in each.routes()], close=feed.close)

    def dead_letters(self) -> Sequence[DeadLetterStore]:
        """Events of the outbox, and messages of the streams of this process and of its sources."""
        from tidegate.engine.dead_letter_stores import event_store, message_store

        return [event_store(self.collection.parts.database), message_store(self.collection.streams)]

    def gauges(self) -> Sequence[Gauges]:
        """Gauges of runs and events, and of the streams, timers and gates of this process."""
        from tidegate.engine.reports.gauges import EngineGauges

        contexts = [self.collection.parts, *(cell.parts for cell in self.collection.cells.values())]
        return [
            EngineGauges(
                self.collection.parts.database,
                [each.gate for each in contexts],
                [each.timers for each in contexts],
                self.collection.streams,
            )
        ]


class OpenSource(OpenSystem):
    """Open sources, each with the process of its cell. Base class for systems with sources."""

    def __init__(self, *cells: "SourceCell") -> None:
        self._cells = cells

    def workers(self) -> "Mapping[str, Service]":
        """The cell of each source, with workers."""
        return {f"source {cell.plugin.name}": cell.service(works=True) for cell in self._cells}

    def services(self) -> "Mapping[str, Service]":
        """The cell of each source, without workers. Worker processes use `workers` instead."""
        return {f"source {cell.plugin.name}": cell.service(works=False) for cell in self._cells}

    def retention_rules(self) -> "Sequence[RetentionRule]":
        """The retention rules of the sources; the process applies them for its cells."""
        return [rule for cell in self._cells for rule in cell.extra.retention_rules]


class SourcesSystem(System):
    """The sources of the setting `sources` and of installed distributions."""

    name = "sources"
    requires = ("collection",)

    def checks(self, settings: "Settings") -> Sequence[Callable[[], object]]:
        """Check that every source can be loaded."""
        from tidegate.engine.source_plugin import own_plugins

        return [lambda: own_plugins(settings)]

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """Open the sources of the installation."""
        from tidegate.engine.collection import Collection
        from tidegate.engine.credentials.memory_tokens import environment_token
        from tidegate.engine.source_plugin import own_plugins

        collection = context.get(Collection)
        async with AsyncExitStack() as stack:
            cells = [
                await stack.enter_async_context(collection.open_source(plugin, token=environment_token(name)))
                for name, plugin in own_plugins(context.settings).items()
            ]
            yield OpenSource(*cells)
