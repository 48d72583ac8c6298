"""Starts crawls, manages their schedules and replays their dead letters.

A crawl registers its host before it starts.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.runs import RunActive, RunCanceled
from tidegate.engine.schedules.store import Schedule, Schedules
from tidegate.engine.upstream.addresses import PrivateHosts
from tidegate.systems.crawl.hosts import host_of
from tidegate.systems.crawl.identities import IdentityRegistry
from tidegate.systems.crawl.raws import Raws
from tidegate.systems.crawl.source import CrawlSource
from tidegate.systems.crawl.targets import CrawlOptions


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay."""

    replayed: int
    """Number of dead letters that are tried again."""
    refused: list[str] = []
    """Dead letters that could not be replayed now, each with the reason."""


class Crawls:
    """Starts and schedules crawls. A crawl has a name, and one active run at most."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        schedules: Schedules,
        identities: IdentityRegistry,
        raws: Raws,
        private_hosts: PrivateHosts,
    ) -> None:
        self._orchestrator, self._schedules, self._identities, self._raws = orchestrator, schedules, identities, raws
        self._private_hosts = private_hosts

    async def begin(self, name: str, options: CrawlOptions) -> int:
        """Start a run and return its id. Raises `RunActive` if the crawl has an active run.

        Raises `NoCredential` if every identity is disabled.
        """
        self._require_public(options)
        subject = options.subject(name)
        # Before anything is written: without an identity the run could not make a call. The host comes before its jobs,
        # so that the gate knows the pace.
        pool = await self._identities.pool_for(name)
        await self._identities.hosts.register(host_of(options.url))
        return await self._orchestrator.begin(CrawlSource.name, subject, pool=pool)

    async def schedule(self, name: str, options: CrawlOptions, *, cron: str, timezone: str = "UTC") -> Schedule:
        """Start a run at each time that `cron` names. Repeating the call changes only the options."""
        self._require_public(options)
        subject = options.subject(name)
        await self._identities.hosts.register(host_of(options.url))
        [schedule] = await self._schedules.add(CrawlSource.name, [subject], cron=cron, timezone=timezone)
        return schedule

    def _require_public(self, options: CrawlOptions) -> None:
        """Refuse hosts that are private by name. The addresses that a name resolves to are checked at each call."""
        host = urlsplit(options.url).hostname or ""
        if self._private_hosts.refuses(host):
            example = f"TIDEGATE_UPSTREAM__PRIVATE_HOSTS='[\"{host}\"]'"
            raise InvalidArgument("url", host, f"is not a public host; to crawl it all the same, set {example}")

    async def replay(self, raw_ids: Sequence[int] | None = None) -> ReplayResult:
        """Process dead letters again without a call: the given ones, or all.

        A part of a product goes back to the processor. A search page is read again by its job, and the jobs that it
        leads to become part of its run; that is refused while the crawl has another active run.
        """
        replayed, refused = await self._raws.replay(raw_ids), list[str]()
        for raw_id, job_id in (await self._raws.dead_searches(raw_ids)).items():
            try:
                replayed += await self._read_again(raw_id, job_id)
            except (RunActive, RunCanceled, NotFound) as error:
                refused.append(f"{raw_id}: {error}")
        return ReplayResult(replayed=replayed, refused=refused)

    async def replay_one(self, raw_id: int) -> bool:
        """Replay one dead letter; False if it is none. Raises `RunActive`, `RunCanceled` and `NotFound`."""
        for search, job_id in (await self._raws.dead_searches([raw_id])).items():
            return await self._read_again(search, job_id)
        return bool(await self._raws.replay([raw_id]))

    async def _read_again(self, raw_id: int, job_id: int) -> bool:
        return await self._orchestrator.read_again(job_id, await self._raws.answer(raw_id))
