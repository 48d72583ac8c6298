"""The one door through which crawls begin, by hand or by the clock. The host is met first: nobody runs ahead of it."""

from tidegate.collect.orchestrator import Orchestrator
from tidegate.collect.schedules import Schedule, Schedules
from tidegate.crawl.hosts import host_of
from tidegate.crawl.identities import IdentityBook
from tidegate.crawl.source import CrawlSource
from tidegate.crawl.targets import CrawlOptions


class Crawls:
    """Begins runs, and keeps the schedules that do. A crawl has a name, and one run at a time."""

    def __init__(self, orchestrator: Orchestrator, schedules: Schedules, identities: IdentityBook) -> None:
        self._orchestrator, self._schedules, self._identities = orchestrator, schedules, identities

    async def begin(self, name: str, options: CrawlOptions) -> int:
        """Begin a run; returns its number. Raises `RunActive` where this crawl has one that is not over.

        Raises `NoCredential` where nobody could make its calls: every identity is disabled.
        """
        subject = options.subject(name)
        pool = await self._identities.pool_for(name)
        await self._identities.hosts.meet(host_of(options.url))
        return await self._orchestrator.begin(CrawlSource.name, subject, pool=pool)

    async def schedule(self, name: str, options: CrawlOptions, *, cron: str, timezone: str = "UTC") -> Schedule:
        """Begin a run whenever `cron` says so. The same again changes the options, and nothing else."""
        subject = options.subject(name)
        await self._identities.hosts.meet(host_of(options.url))
        [schedule] = await self._schedules.add(CrawlSource.name, [subject], cron=cron, timezone=timezone)
        return schedule
