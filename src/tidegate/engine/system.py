"""Declares collection to the application: runs of jobs of all sources, and the sources of the installation's own."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from tidegate.system import Api, Command, Context, Gauges, HttpContext, OpenSystem, System

if TYPE_CHECKING:
    from tidegate.engine.collection import Collection
    from tidegate.engine.source_cell import SourceCell
    from tidegate.runtime.retention import RetentionRule
    from tidegate.runtime.service import Service
    from tidegate.settings import Settings

_COMMANDS = "tidegate.engine.commands"


class CollectionSystem(System):
    """Runs of jobs: what all sources have in common."""

    name = "collection"
    sections = {
        "aws": "tidegate.engine.sqs.settings:AwsSettings",
        "collect": "tidegate.engine.settings:CollectSettings",
        "upstream": "tidegate.engine.upstream.settings:UpstreamSettings",
    }
    commands = {
        "collect": Command(f"{_COMMANDS}.collect:collect", "Collect what users did on GitHub, or from another source."),
        "credentials": Command(f"{_COMMANDS}.credentials:app", "Say whose tokens and apps may be used."),
        "export": Command(f"{_COMMANDS}.export:export", "Write documents as Parquet, CSV or JSON Lines."),
        "jobs": Command(f"{_COMMANDS}.jobs:app", "Look at single jobs and the requests that they sent."),
        "report": Command(f"{_COMMANDS}.report:app", "Report what fails, waits, or takes too long."),
        "runs": Command(f"{_COMMANDS}.runs:app", "Look at runs, cancel them, and have what failed done again."),
        "schedules": Command(f"{_COMMANDS}.schedules:app", "Begin runs by the clock."),
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
        """The library for AWS."""
        from tidegate.engine.sqs.opening import require_library
        from tidegate.engine.sqs.settings import AwsSettings

        return [lambda: require_library(settings.section(AwsSettings))]

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """Collection without a source; systems that bring sources open them (`OpenSource`)."""
        from tidegate.engine.collection import open_collection_on
        from tidegate.engine.sqs import AwsSettings, open_aws
        from tidegate.primitives.stream import TicketedStream

        triggers_only = context.section(AwsSettings).model_copy(update={"task_queue_url": None})
        async with (
            open_collection_on(context) as collection,
            open_aws(triggers_only, TicketedStream(context.valkey, context.jobs), context.owner) as aws,
        ):
            context.share(collection)
            yield OpenCollection(collection, aws.inbox(collection.trigger))


class OpenCollection(OpenSystem):
    """What collection contributes to a process, whatever its sources are."""

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
        """Runs, cursors and firings."""
        from tidegate.engine.source_cell import engine_rules

        return engine_rules(self.collection.parts)

    def api(self, http: HttpContext) -> Api:
        """Runs, jobs, schedules, credentials, quotas, reports and dead letters."""
        from tidegate.engine.api.credentials import CredentialRoutes
        from tidegate.engine.api.dead_letters import DeadLetterRoutes
        from tidegate.engine.api.jobs import JobRoutes
        from tidegate.engine.api.quotas import QuotaRoutes
        from tidegate.engine.api.reports import ReportRoutes
        from tidegate.engine.api.run_details import RunDetailReader
        from tidegate.engine.api.run_feed import RunFeed
        from tidegate.engine.api.runs import RunRoutes
        from tidegate.engine.api.schedules import ScheduleRoutes

        collection = self.collection
        details = RunDetailReader(collection)
        feed = RunFeed(details.detail, collection.change_feed, http.seats)
        routes = [
            RunRoutes(collection, details, feed),
            JobRoutes(collection),
            ScheduleRoutes(collection),
            CredentialRoutes(collection),
            QuotaRoutes(collection),
            ReportRoutes(collection),
            DeadLetterRoutes(collection),
        ]
        return Api(routes=[route for each in routes for route in each.routes()], close=feed.close)

    def gauges(self) -> Sequence[Gauges]:
        """Runs and events, and the streams, timers and gates of this process."""
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
    """Sources that are open, each with the process of its cell; base class of systems that bring one."""

    def __init__(self, *cells: "SourceCell") -> None:
        self._cells = cells

    def workers(self) -> "Mapping[str, Service]":
        """The cell of each source, with workers."""
        return {f"source {cell.plugin.name}": cell.service(works=True) for cell in self._cells}

    def services(self) -> "Mapping[str, Service]":
        """The cell of each source, without workers; a process that works has `workers` instead."""
        return {f"source {cell.plugin.name}": cell.service(works=False) for cell in self._cells}

    def retention_rules(self) -> "Sequence[RetentionRule]":
        """Those of the sources; their cells leave them to the process that they are in."""
        return [rule for cell in self._cells for rule in cell.extra.retention_rules]


class SourcesSystem(System):
    """Sources of the setting `sources`, and of installed distributions."""

    name = "sources"
    requires = ("collection",)

    def checks(self, settings: "Settings") -> Sequence[Callable[[], object]]:
        """Whether every source can be loaded."""
        from tidegate.engine.source_plugin import own_plugins

        return [lambda: own_plugins(settings)]

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """The sources, for the length of a block."""
        from tidegate.engine.collection import Collection
        from tidegate.engine.credentials.environment_token import environment_token
        from tidegate.engine.source_plugin import own_plugins

        collection = context.get(Collection)
        async with AsyncExitStack() as stack:
            cells = [
                await stack.enter_async_context(collection.open_source(plugin, token=environment_token(name)))
                for name, plugin in own_plugins(context.settings).items()
            ]
            yield OpenSource(*cells)
