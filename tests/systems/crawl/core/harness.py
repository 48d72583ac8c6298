"""A site that says little, and a crawl of it without network and gate: rounds as a committer writes them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy
from sqlalchemy import select

from tidegate.core.clock import ManualClock
from tidegate.engine import runs
from tidegate.engine.commit_batch import CommitBatch, CommitPolicy, WriteGroup, write_batch
from tidegate.engine.job_results import JobResult, from_reading
from tidegate.engine.job_store import Claim
from tidegate.engine.runs import NewRun, Run
from tidegate.engine.source import FIRST_PAGE, Task
from tidegate.engine.tables import page_jobs
from tidegate.engine.upstream import Answer
from tidegate.primitives.gate import Admitted
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.crawl.finalizing import CrawlFinalizer
from tidegate.systems.crawl.processing import RawProcessor
from tidegate.systems.crawl.products import Product, Products
from tidegate.systems.crawl.raws import Raw, RawPage, Raws
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate.systems.crawl.site import ResultPage, Sites, Unreadable
from tidegate.systems.crawl.source import CrawlSource
from tidegate.systems.crawl.stages import SEARCH, STAGES, RawState, Stage
from tidegate.systems.crawl.targets import CrawlOptions
from tidegate.systems.crawl.writing import CrawlWriter

HOST, SHOP = "shop.example", "s1"
SETTINGS = CrawlSettings(raw_attempts=3)
LONG = timedelta(hours=2)
"""Longer than any pause."""


class PlainSite:
    """Pages are JSON. What `sick` names cannot be read for now; nonsense never can."""

    name = "plain"

    def __init__(self) -> None:
        self.sick = set[str]()

    def search_path(self, keyword: str, page: int) -> str:
        return f"/search/{quote(keyword)}/{page}"

    def read_listing(self, body: bytes) -> ResultPage:
        products, following = msgspec.json.decode(body, type=tuple[list[Any], int | None])
        return ResultPage.of([(product, SHOP) for product in products], following)

    def path(self, stage: Stage, product_id: str, shop_id: str) -> str:
        return f"/{stage}/{shop_id}/{product_id}"

    def extract(self, stage: Stage, product_id: str, body: bytes) -> Mapping[str, Any]:
        said: dict[str, Any] = msgspec.json.decode(body)
        if said["said"] in self.sick or said["said"] == "nonsense":
            raise Unreadable(f"{said['said']} is unreadable")
        return {"stage": stage, "product": product_id, "said": said["said"]}


def content(stage: Stage, product: str, said: str) -> dict[str, str]:
    """What a page of the plain site leaves in a product."""
    return {"stage": stage.value, "product": product, "said": said}


def answered(body: Any = None, status: int = 200, /, **headers: str) -> Answer:
    """An answer of a host; its body is JSON, or bytes as they are."""
    named = CIMultiDictProxy(CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()}))
    return Answer(
        status=status,
        headers=named,
        url=f"https://{HOST}/page",
        received_at=datetime(2026, 1, 1, tzinfo=UTC),
        body=body if isinstance(body, bytes) else msgspec.json.encode(body),
        elapsed_ms=1.0,
    )


def task_of(claim: Claim) -> Task:
    return Task(
        spec=claim.job.spec,
        run_id=claim.job.run_id,
        user_id=claim.user_id,
        credential="crawl:ada",
        attempt=claim.attempt,
        cursor=claim.cursor,
    )


class PartRaws(Raws):
    """Stored answers without the pages of searches."""

    async def page(self, **wanted: Any) -> RawPage:
        return await super().page(stages=STAGES, **wanted)

    async def counts(self, *args: Any, **wanted: Any) -> dict[RawState, int]:
        return await super().counts(*args, stages=STAGES, **wanted)


class CrawlHarness:
    """A crawl of the plain site, step by step."""

    def __init__(self, database: Database, site: PlainSite | None = None) -> None:
        self.database, self.site = database, site or PlainSite()
        # Whoever fetches is never sick: what cannot be read when it is fetched is another story.
        self.source = CrawlSource(Sites([PlainSite()]), SETTINGS)
        self.policy = CommitPolicy(planning={"crawl": self.source.planning_kinds}, writers={"crawl": CrawlWriter()})
        self.processor = RawProcessor(database, Sites([self.site]), SETTINGS)
        self.finalizer = CrawlFinalizer(database, self.processor)
        self.products, self.raws = Products(database), PartRaws(database)

    async def begin(
        self,
        *products: str,
        crawl: str = "daily",
        keywords: Sequence[str] = ("rope",),
        others: int = 200,
        pages: int = 100,
    ) -> int:
        """A run that has found these products, all on the first page of its first search.

        The `others` found nothing, or failed with that status.
        """
        options = CrawlOptions(url=f"https://{HOST}", keywords=list(keywords), site="plain", pages=pages)
        beginning = NewRun.of(self.source, options.subject(crawl), "crawl", "manual")
        run_id, jobs = await self.database.transaction(runs.begin, beginning)
        first, *rest = [job.id for job in jobs]
        await self.end(first, answered((products, None)))
        for job_id in rest:
            await self.end(job_id, answered(((), None), others))
        return run_id

    async def answer(self, run_id: int, stage: Stage, product: str, said: str = "hello", **headers: str) -> None:
        """The page of a product comes; `said` is its content."""
        await self.end(await self.job(run_id, stage, product), answered({"said": said}, **headers))

    async def whole(self, run_id: int, product: str, said: str = "hello") -> None:
        """All three stages come, in order."""
        for stage in STAGES:
            await self.answer(run_id, stage, product, said)

    async def lack(self, run_id: int, stage: Stage, product: str, status: int = 404) -> None:
        """The page is not there."""
        await self.end(await self.job(run_id, stage, product), answered(None, status))

    async def end(self, job_id: int, answer: Answer) -> JobResult:
        """Claim a job and end it with an answer, as the committer does."""
        (finished,) = await self.end_all({job_id: answer})
        return finished

    async def end_all(self, answers: Mapping[int, Answer]) -> list[JobResult]:
        """The same for several jobs, in one round."""
        written = await self.database.transaction(write_batch, CommitBatch(wanted=list(answers)), self.policy)
        claims, now = written.claimed, self.database.clock.now()
        finished = [finish(self.source, claims[job_id], answer, now) for job_id, answer in answers.items()]
        await self.database.transaction(write_batch, CommitBatch(groups=[WriteGroup(finished)]), self.policy)
        return finished

    async def jobs(self, run_id: int) -> dict[tuple[str, str], int]:
        """All stages of all products that a run has found."""
        return await self.database.read(_jobs_of, run_id)

    async def job(self, run_id: int, kind: str, product: str, page: str = FIRST_PAGE) -> int:
        return await self.database.read(_job_of, run_id, kind, f"{HOST}/{product}", page)

    async def product(self, product: str) -> Product:
        return await self.products.get(HOST, product)

    async def finalize(self, run_id: int) -> None:
        """As the end of the run does, which is then over."""
        run = await self.run(run_id)
        await self.finalizer.finalize(run)
        await self.database.transaction(runs.complete, run_id, frozenset({SEARCH}))

    async def run(self, run_id: int) -> Run:
        return await self.database.read(runs.get, run_id)

    async def all_raws(self) -> list[Raw]:
        """Stored answers about products."""
        return (await self.raws.page(limit=1000)).raws

    async def searches(self) -> list[Raw]:
        """Kept pages of searches."""
        return (await Raws(self.database).page(stages=[SEARCH])).raws


def admitted(claim: Claim) -> Admitted:
    """The permit of a claimed job."""
    job = str(claim.job.id)
    return Admitted(
        message=f"{job}-{claim.fence}",
        job=job,
        permit=job,
        credential="crawl:ada",
        bucket=claim.job.spec.bucket,
        cost=1,
        turned=0,
        payload="",
        deliveries=1,
    )


def finish(source: CrawlSource, claim: Claim, answer: Answer, now: datetime) -> JobResult:
    """What the worker makes of an answer."""
    return from_reading(claim, admitted(claim), source.read(task_of(claim), answer), answer, now)


def later(database: Database, by: timedelta = LONG) -> None:
    """Let time pass."""
    clock = database.clock
    assert isinstance(clock, ManualClock)
    clock.advance(by)


def _jobs_of(tx: Transaction, run_id: int) -> dict[tuple[str, str], int]:
    job = page_jobs.c
    rows = tx.execute(select(job.id, job.job_type, job.resource_key).where(job.run_id == run_id)).all()
    return {(row.resource_key.partition("/")[2], row.job_type): row.id for row in rows if row.job_type != SEARCH}


def _job_of(tx: Transaction, run_id: int, kind: str, resource: str, page: str) -> int:
    job = page_jobs.c
    those = (job.run_id == run_id, job.job_type == kind, job.resource_key == resource, job.page_key == page)
    return tx.execute(select(job.id).where(*those)).scalar_one()
