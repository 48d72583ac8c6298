"""What collection contributes to a process. Transitional, as `collection_system`."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidegate.app.cells import CellNotifier
from tidegate.app.collecting import OpenEngine
from tidegate.runtime.retention import RetentionRule
from tidegate.runtime.service import Service
from tidegate.system import Api, Gauges, HttpContext

if TYPE_CHECKING:
    from tidegate.app.collection import Collection


class OpenCollection(OpenEngine):
    """What collection contributes to a process."""

    def __init__(self, collection: "Collection") -> None:
        super().__init__(collection)
        self.collection = collection
        self._cells = CellNotifier(collection.parts)

    def services(self) -> Mapping[str, Service]:
        """Notifiers, queues of AWS, and the token that is tried again."""
        late = self.collection.late_token
        return {
            **super().services(),
            "cell notifier": self._cells,
            **({} if late is None else {"late-token": late}),
        }

    def on_loss(self) -> Sequence[Callable[[], object]]:
        """Enqueue everything unfinished again, and wake the leaders of cells that have events to handle."""
        return [*super().on_loss(), self._cells.check]

    def retention_rules(self) -> Sequence[RetentionRule]:
        """Runs, cursors and firings; pages and identities of the crawl."""
        from tidegate.systems.crawl import retention as crawl
        from tidegate.systems.crawl.settings import CrawlSettings

        parts = self.collection.parts
        kept = parts.settings.retention
        return [
            *super().retention_rules(),
            *crawl.rules(
                parts.database,
                raws=parts.section(CrawlSettings).raws_kept,
                dead_letters=kept.dead_letters,
                identity_health=kept.identity_health,
            ),
        ]

    def api(self, http: HttpContext) -> Api:
        """Runs, jobs, schedules, statistics, credentials, quotas, reports, dead letters and crawls."""
        from tidegate.app.collection_api import collection_api

        return collection_api(self.collection, http)

    def gauges(self) -> Sequence[Gauges]:
        """Jobs, streams, timers, the gate, and pages of the crawl."""
        from tidegate.systems.crawl.gauges import CrawlGauges

        return [*super().gauges(), CrawlGauges(self.collection.parts.database)]
