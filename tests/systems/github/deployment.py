"""A whole process that collects from a simulated GitHub, and what it has to be equal to."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from sqlalchemy import select

from tests.processes.at_work import at_work, collecting
from tests.servers.migrated import migrated_file
from tests.servers.valkey import empty_valkey
from tests.waiting import WHOLE_RUN_S, look_again, patience
from tidegate.connections import build_context
from tidegate.engine.lifecycle import RunState
from tidegate.engine.runs import Run
from tidegate.engine.source import Subject
from tidegate.engine.source_cell import CollectDependencies, Collector
from tidegate.engine.tables import page_jobs
from tidegate.engine.upstream import UpstreamClient, UpstreamSettings
from tidegate.primitives.gate import CredentialLimits
from tidegate.settings import Settings
from tidegate.storage.documents import SqlDocuments
from tidegate.storage.sql import Database, Transaction
from tidegate.system import Context
from tidegate.systems.github import ESSENTIAL, GithubSource, parse_subject
from tidegate.systems.github.statistics import Statistics
from tidegate.systems.github.webhooks.receiver import Webhooks
from tidegate.systems.github.webhooks.settings import GithubWebhookSettings
from tidegate_simulators.github import (
    Behaviour,
    GithubSimulator,
    LimitSettings,
    Report,
    SimulatorConfig,
    Sizes,
    WorldShape,
)

SMALL = Sizes(issues=7, pulls=5, commits=9, issue_comments=11, review_comments=4, reviews=6)
LARGE = Sizes(issues=220, pulls=130, commits=250, issue_comments=240, review_comments=120, reviews=160)
CALM = Behaviour(error_pause_s=0, hang_s=0, drip_s=0)
SECRET = "a-secret-of-the-webhook"
LIMITS = CredentialLimits(concurrency=50, per_minute=100_000, floor=0)


class Deployment:
    """One process, one simulator, one token for each user; or a pool of the operators' tokens for all."""

    def __init__(
        self, parts: Context, sim: GithubSimulator, client: UpstreamClient, include: Iterable[str], *, is_pooled: bool
    ) -> None:
        self.parts, self.sim, self._is_pooled = parts, sim, is_pooled
        documents = SqlDocuments(parts.database)
        self.documents = documents.of("github")
        dependencies = CollectDependencies(parts.database, parts.gate, parts.jobs, parts.owner, documents)
        self.limits = LIMITS
        source = GithubSource(sim.url, include)
        self.statistics = Statistics(parts.database, self.documents)
        self.collector = Collector(
            dependencies,
            [source],
            caller=client,
            secrets=self,
            register_credentials=self.register,
            finalizers=[self.statistics.finalize],
        )
        self.orchestrator = self.collector.orchestrator
        secrets = GithubWebhookSettings(secrets=(SecretStr("an-older-secret-of-it"), SecretStr(SECRET)))
        self.webhooks = Webhooks(parts.database, self.documents, secrets)

    async def register(self) -> None:
        world = self.sim.world
        for login in world.operators() if self._is_pooled else world.logins():
            await self.parts.gate.register(login, pool=self._pool(login), limits=self.limits)

    def _pool(self, login: str) -> str:
        return "operators" if self._is_pooled else login

    async def secret_of(self, credential: str) -> str:
        return self.sim.token_of(credential)

    async def collect(self, *logins: str, **options: Any) -> list[Run]:
        """Collect subjects, all at once, and wait for the end."""
        begun = [await self.begin(login, **options) for login in logins]
        async with asyncio.timeout(WHOLE_RUN_S):
            return [await self._until(run_id, RunState.COMPLETED) for run_id in begun]

    async def begin(self, written: str, *, pool: str | None = None, **options: Any) -> int:
        """Begin a run for a subject; without a `pool`, with the token of the account that it belongs to."""
        subject = parse_subject(written)
        whose = subject.account or self.sim.world.logins()[0]
        return await self.orchestrator.begin("github", subject.with_options(options), pool=pool or self._pool(whose))

    async def end_of(self, run_id: int, status: RunState = RunState.COMPLETED) -> Run:
        """Wait for the end of a run."""
        async with patience():
            return await self._until(run_id, status)

    async def collect_in_vain(self, login: str, *, pool: str) -> Run:
        """Begin a run that cannot be planned, with somebody else's token, and wait for its end."""
        run_id = await self.orchestrator.begin("github", Subject(user_id=login, login=login), pool=pool)
        async with patience():
            return await self._until(run_id, RunState.FAILED)

    async def _until(self, run_id: int, status: RunState) -> Run:
        while (run := await self.orchestrator.show(run_id)).status is not status:
            await look_again()
        return run

    async def bodies(self, kind: str, owner: str | None = None) -> dict[Any, Any]:
        """What was collected of a kind and is not gone, by id."""
        return {found.id: found.body async for found in self.documents.iterate(kind, owner)}

    async def failures(self, run: Run) -> list[str]:
        """Why jobs of a run failed."""
        jobs = await self.parts.database.read(_jobs_of, run.id)
        return [job.last_error for job in jobs if job.status == "failed"]

    def spent(self, before: Report | None = None) -> dict[str, int]:
        """What was taken from allowances since a report."""
        spent = self.sim.report().spent
        return {name: used - (before.spent.get(name, 0) if before else 0) for name, used in spent.items()}


def _jobs_of(tx: Transaction, run_id: int) -> list[Any]:
    return list(tx.execute(select(page_jobs).where(page_jobs.c.run_id == run_id).order_by(page_jobs.c.id)))


@asynccontextmanager
async def deployed(
    folder: Path,
    valkey_url: str,
    *,
    users: int = 1,
    repositories: int | None = 1,
    sizes: Sizes | None = SMALL,
    events: int | None = 20,
    quirks: bool = False,
    organizations: int = 0,
    extras: int = 3,
    discussions: int = 0,
    limits: LimitSettings | None = None,
    behaviour: Behaviour = CALM,
    include: Iterable[str] = ESSENTIAL,
    is_pooled: bool = False,
) -> AsyncGenerator[Deployment]:
    """A simulator with a small world unless told otherwise, and a process that is at work."""
    config = SimulatorConfig(
        world=WorldShape(
            users=users,
            organizations=organizations,
            extras=extras,
            discussions=discussions,
            repositories=repositories,
            sizes=sizes,
            events=events,
            quirks=quirks,
        ),
        limits=limits or LimitSettings(),
        behaviour=behaviour,
    )
    patience = UpstreamSettings(read_timeout=timedelta(seconds=5))
    async with (
        GithubSimulator(config) as sim,
        UpstreamClient(patience) as client,
        empty_valkey(valkey_url) as valkey,
        await Database.open(await migrated_file(folder / "tidegate.db")) as database,
    ):
        deployment = Deployment(build_context(Settings(), valkey, database), sim, client, include, is_pooled=is_pooled)
        async with at_work(collecting(deployment.parts, deployment.collector, [deployment.webhooks.handler])):
            yield deployment
        await deployment.webhooks.close()


async def assert_complete(deployment: Deployment, *logins: str) -> None:
    """Every document that can be read of these users is there, and equal to the simulator's, and there is no other."""
    for login in logins:
        truth = deployment.sim.truth(login)
        found = truth.repositories
        wanted: dict[str, dict[str, Any]] = {
            "user": {str(truth.profile["id"]): truth.profile},
            "event": {event["id"]: event for event in truth.events},
            "repository": {str(each.repository["id"]): each.repository for each in found},
            "issue": {str(item["id"]): item for each in found for item in each.issues},
            "pull_request": {str(item["id"]): item for each in found for item in each.pulls},
            "commit": {f"{each.repository['id']}:{item['sha']}": item for each in found for item in each.commits},
        }
        for kind, truly in wanted.items():
            assert await deployment.bodies(kind, login) == truly, f"{kind} of {login}"


async def assert_talk_is_complete(deployment: Deployment, *logins: str) -> None:
    """The same for comments and reviews; the latter come by GraphQL, with fewer fields."""
    for login in logins:
        found = deployment.sim.truth(login).repositories
        comments = {str(item["id"]): item for each in found for item in each.issue_comments}
        assert await deployment.bodies("issue_comment", login) == comments
        comments = {str(item["id"]): item for each in found for item in each.review_comments}
        assert await deployment.bodies("review_comment", login) == comments
        reviews = {str(item["id"]): item for each in found for item in each.reviews}
        collected = await deployment.bodies("review", login)
        assert collected.keys() == reviews.keys()
        same = ("id", "node_id", "state", "body", "submitted_at", "commit_id", "author_association", "html_url")
        for id_, review in collected.items():
            assert {name: review[name] for name in same} == {name: reviews[id_][name] for name in same}
