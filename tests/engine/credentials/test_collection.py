"""Whole runs against a simulated GitHub, while credentials are refused, renewed, removed and shared."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sqlalchemy import insert

from tests.engine.credentials.harness import APP, INSTALLATION, POOL, app_key
from tests.waiting import WHOLE_RUN_S, look_again, patience
from tidegate.core.errors import InvalidSettings, NoCredential
from tidegate.engine.collection import open_credentials
from tidegate.engine.commands.collecting import collect_all
from tidegate.engine.commands.screens import SilentOutput
from tidegate.engine.credentials import CredentialState, pool_of, records
from tidegate.engine.lifecycle import ACTIVE_RUNS, RunState
from tidegate.engine.reports.progress import failures_of
from tidegate.engine.runs import Run
from tidegate.engine.source import Subject
from tidegate.engine.source_cell import SourceCell
from tidegate.engine.tables import allowance_notes
from tidegate.primitives.gate import CredentialLimits
from tidegate.settings import Settings
from tidegate.storage.sql import Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.github import GithubSettings
from tidegate.systems.github.opening import open_github
from tidegate_simulators.github import Behaviour, GithubSimulator, LimitSettings, SimulatorConfig, Sizes, WorldShape

MANY_PAGES = Sizes(issues=320, pulls=220, commits=420)


def simulator(*, latency_ms: float = 20, **limits: Any) -> GithubSimulator:
    """One user with a few repositories: about fifty calls."""
    return GithubSimulator(
        SimulatorConfig(
            world=WorldShape(users=2, operators=3, repositories=4, sizes=MANY_PAGES, events=40, quirks=False),
            limits=LimitSettings(**limits),
            behaviour=Behaviour(latency_ms=latency_ms, jitter=0),
        )
    )


@pytest.fixture
def settings(data_dir: Path, embedded: Valkey, embedded_url: str) -> Callable[[GithubSimulator], Settings]:
    del embedded  # emptied for us

    def make(sim: GithubSimulator) -> Settings:
        return Settings(
            data_dir=data_dir,
            valkey_url=embedded_url,
            github=GithubSettings(api_url=sim.url),
            gate=CredentialLimits(concurrency=4, floor=0, patience=timedelta(0)),
        )

    return make


MakeSettings = Callable[[GithubSimulator], Settings]


@asynccontextmanager
async def at_work(settings: Settings, token: str | None = None) -> AsyncGenerator[SourceCell]:
    async with open_github(settings, token=token, needs_credential=False) as collection:
        process = collection.process()
        running = asyncio.create_task(process.run())
        try:
            yield collection
        finally:
            process.stop()
            report = await running
        assert report.is_clean, report


async def begin(collection: SourceCell, login: str) -> int:
    pool = await collection.credential_manager.pool_for(login)
    return await collection.orchestrator.begin("github", Subject(user_id=login, login=login), pool=pool)


async def until_over(collection: SourceCell, run_id: int) -> Run:
    async with asyncio.timeout(WHOLE_RUN_S):
        while (run := await collection.orchestrator.show(run_id)).status in ACTIVE_RUNS:
            await look_again()
    return run


async def until_nothing_waits(collection: SourceCell) -> None:
    """The gate forgets the jobs of a failed run after the transaction that fails it."""
    async with patience():
        while (await collection.parts.gate.status(POOL)).waiting:
            await look_again()


async def until_called(sim: GithubSimulator, token_name: str, times: int) -> None:
    async with patience():
        while sim.report().by_token.get(token_name, 0) < times:
            await look_again()


async def the_busy_one(sim: GithubSimulator, operators: list[str]) -> str:
    """Which token makes the calls of a run: pages stay with the first token, since its ETags are valid for it alone."""
    async with patience():
        while True:
            called = sim.report().by_token
            busy = max(operators, key=lambda operator: called.get(f"{operator}#0", 0))
            if called.get(f"{busy}#0", 0) >= 8:
                return busy
            await look_again()


async def assert_everything_is_there(collection: SourceCell, sim: GithubSimulator, login: str) -> None:
    truth = sim.truth(login).repositories
    for kind, wanted in (("issue", "issues"), ("pull_request", "pulls"), ("commit", "commits")):
        found = [one.body async for one in collection.documents.of("github").iterate(kind, login)]
        assert len(found) == sum(len(getattr(each, wanted)) for each in truth), kind


async def states(collection: SourceCell) -> dict[str, CredentialState]:
    return {one.name: one.state for one in await collection.credential_manager.list()}


async def test_a_run_continues_with_the_second_token_when_the_first_is_revoked(settings: MakeSettings):
    async with simulator() as sim:
        login, two = sim.world.logins()[0], sim.world.operators()[:2]
        async with at_work(settings(sim)) as collection:
            for operator in two:
                await collection.credential_manager.add_token(sim.token_of(operator))
            run_id = await begin(collection, login)
            first = await the_busy_one(sim, two)
            (second,) = set(two) - {first}
            sim.credentials.revoke(sim.token_of(first))

            run = await until_over(collection, run_id)

            assert (run.status, run.failed_jobs) == (RunState.COMPLETED, 0)
            await assert_everything_is_there(collection, sim, login)
            assert await states(collection) == {first: CredentialState.INVALID, second: CredentialState.VALID}
            refused = await collection.credential_manager.get(first)
            assert refused.invalid_reason == "401: Bad credentials"
            report = sim.report()
            assert 1 <= report.by_status["401"] <= 4, "those that were under way, and no other"
            assert report.broken == 0


@pytest.mark.full
async def test_a_run_whose_only_token_is_revoked_fails_with_the_reason_and_can_be_retried(settings: MakeSettings):
    async with simulator() as sim:
        login, operator = sim.world.logins()[0], sim.world.operators()[0]
        async with at_work(settings(sim)) as collection:
            book = collection.credential_manager
            await book.add_token(sim.token_of(operator))
            run_id = await begin(collection, login)
            await until_called(sim, f"{operator}#0", 6)
            sim.credentials.revoke(sim.token_of(operator))

            run = await until_over(collection, run_id)

            assert run.status is RunState.FAILED
            assert run.last_error is not None
            assert run.last_error.startswith("no valid credential for pool 'github': set GITHUB_TOKEN")
            failures = await collection.parts.database.read(failures_of, [run_id])
            assert len(failures) == run.failed_jobs == run.total_jobs - run.succeeded_jobs
            assert {failure.reason for failure in failures} == {run.last_error}
            await until_nothing_waits(collection)
            assert sim.report().by_status["401"] <= 4
            with pytest.raises(NoCredential):
                await book.pool_for(login)

            assert await collection.orchestrator.retry(run_id) == run.failed_jobs
            assert (await until_over(collection, run_id)).status is RunState.FAILED, "as long as there is none"
            await book.add_token(sim.token_of(operator, 1))
            await collection.orchestrator.retry(run_id)
            run = await until_over(collection, run_id)

            assert (run.status, run.failed_jobs) == (RunState.COMPLETED, 0)
            await assert_everything_is_there(collection, sim, login)
            assert sim.report().broken == 0


async def test_a_run_with_a_revoked_configured_token_fails_with_the_reason(settings: MakeSettings):
    async with simulator() as sim:
        login, operator = sim.world.logins()[0], sim.world.operators()[0]
        async with at_work(settings(sim), sim.token_of(operator)) as collection:
            run_id = await begin(collection, login)
            await until_called(sim, f"{operator}#0", 6)
            sim.credentials.revoke(sim.token_of(operator))

            run = await until_over(collection, run_id)

            assert run.status is RunState.FAILED
            assert "no valid credential" in (run.last_error or "")
            assert await states(collection) == {"GITHUB_TOKEN": CredentialState.INVALID}
        with pytest.raises(InvalidSettings, match="GITHUB_TOKEN cannot be used"):
            async with open_github(settings(sim), token=sim.token_of(operator)):
                raise AssertionError("opened")


@pytest.mark.full
@pytest.mark.full
async def test_an_app_token_is_renewed_during_a_run(settings: MakeSettings):
    private, public = app_key()
    async with simulator(latency_ms=400, installation_token_s=5) as sim:
        sim.credentials.register_app(APP, public, {INSTALLATION: (1, 1)})
        login = sim.world.logins()[0]
        async with at_work(settings(sim)) as collection:
            await collection.credential_manager.add_installation(
                private, app_id=APP, installation_id=INSTALLATION, owner="Platform team"
            )
            run = await until_over(collection, await begin(collection, login))

            assert (run.status, run.failed_jobs) == (RunState.COMPLETED, 0)
            await assert_everything_is_there(collection, sim, login)
            report = sim.report()
            assert report.by_status.get("401", 0) == 0, "never with a token that had ended"
            assert report.by_route["app.token"] >= 2 + 1, "one to check it, one to begin with, and some more"
            assert report.broken == 0


@pytest.mark.full
async def test_two_tokens_of_one_account_share_one_allowance(settings: MakeSettings):
    async with simulator(latency_ms=2, quota=20, window_s=1.5) as sim:
        login, operator = sim.world.logins()[0], sim.world.operators()[0]
        async with at_work(settings(sim)) as collection:
            await collection.credential_manager.add_token(sim.token_of(operator, 0), name="one")
            await collection.credential_manager.add_token(sim.token_of(operator, 1), name="two")
            run = await until_over(collection, await begin(collection, login))

            assert (run.status, run.failed_jobs) == (RunState.COMPLETED, 0)
            await assert_everything_is_there(collection, sim, login)
            report = sim.report()
            assert (report.broken, report.refused) == (0, 0)
            assert len([use for use in report.windows if use.used > 1]) >= 2, "it had to wait for another window"


@pytest.mark.full
async def test_a_credential_removed_by_another_process_is_no_longer_used(settings: MakeSettings):
    async with simulator(latency_ms=30) as sim:
        login, two = sim.world.logins()[0], sim.world.operators()[:2]
        async with at_work(settings(sim)) as collection:
            for operator in two:
                await collection.credential_manager.add_token(sim.token_of(operator))
            run_id = await begin(collection, login)
            first = await the_busy_one(sim, two)
            async with open_credentials(settings(sim), "github") as elsewhere:
                await elsewhere.remove(first)
            at_removal = sim.report().by_token[f"{first}#0"]

            run = await until_over(collection, run_id)

            assert (run.status, run.failed_jobs) == (RunState.COMPLETED, 0)
            assert sim.report().by_token[f"{first}#0"] <= at_removal + 4, "what had its permit, and no other"


@pytest.mark.full
async def test_a_credential_added_by_another_process_is_used_immediately(settings: MakeSettings):
    async with simulator(latency_ms=5, quota=12, window_s=60) as sim:
        login, (first, second, third) = sim.world.logins()[0], sim.world.operators()
        async with at_work(settings(sim)) as collection:
            await collection.credential_manager.add_token(sim.token_of(first))
            run_id = await begin(collection, login)
            await until_called(sim, f"{first}#0", 11)
            async with open_credentials(settings(sim), "github") as elsewhere:
                await elsewhere.add_token(sim.token_of(second))
            await until_called(sim, f"{second}#0", 5)
            async with open_credentials(settings(sim), "github") as elsewhere:
                await elsewhere.add_token(sim.token_of(third))
            await until_called(sim, f"{third}#0", 5)

            assert (await collection.orchestrator.show(run_id)).failed_jobs == 0
            assert sim.report().broken == 0
            await collection.orchestrator.cancel(run_id)


@pytest.mark.full
async def test_removing_the_last_credential_fails_the_runs_that_need_it(settings: MakeSettings):
    async with simulator(latency_ms=100) as sim:
        login, bystander = sim.world.logins()
        first, second, *_ = sim.world.operators()
        async with at_work(settings(sim)) as collection:
            await collection.credential_manager.add_token(sim.token_of(first), user_id=login)
            await collection.credential_manager.add_token(sim.token_of(second))
            run_id, other = await begin(collection, login), await begin(collection, bystander)
            await until_called(sim, f"{first}#0", 4)

            async with open_credentials(settings(sim), "github") as elsewhere:
                await elsewhere.remove(first)
            run = await until_over(collection, run_id)

            assert run.status is RunState.FAILED
            assert f"no valid credential for pool {pool_of('github', login)!r}" in (run.last_error or "")
            assert (await until_over(collection, other)).status is RunState.COMPLETED
            assert await collection.credential_manager.pool_for(login) == POOL, "the next run takes everybody's"
            assert (await until_over(collection, await begin(collection, login))).status is RunState.COMPLETED


async def test_the_next_leader_fails_the_runs_that_a_killed_process_left_open(settings: MakeSettings):
    async with simulator() as sim:
        login, operator = sim.world.logins()[0], sim.world.operators()[0]
        async with open_github(settings(sim), token=sim.token_of(operator)) as collection:
            run_id = await begin(collection, login)
            database = collection.parts.database
            stored = await database.read(records.get, "github", "GITHUB_TOKEN")
            await database.transaction(records.mark_invalid, stored, "401: Bad credentials")

        async with open_github(settings(sim), needs_credential=False) as later:
            process = later.process()
            running = asyncio.create_task(process.run())
            run = await until_over(later, run_id)
            process.stop()
            await running

        assert run.status is RunState.FAILED
        assert sim.report().by_route.get("user.repos", 0) == 0


async def test_a_run_for_a_pool_without_credentials_fails_at_once(settings: MakeSettings):
    async with simulator() as sim, open_github(settings(sim), needs_credential=False) as collection:
        subject, pool = Subject(user_id="ada", login="ada"), pool_of("github", "ada")
        run_id = await collection.orchestrator.begin("github", subject, pool=pool)

        run = await collection.orchestrator.show(run_id)
        assert (run.status, run.failed_jobs) == (RunState.FAILED, run.total_jobs)
        assert (await collection.parts.gate.status(pool)).waiting == {}


async def test_data_of_two_github_servers_is_never_mixed_in_one_database(settings: MakeSettings):
    async with simulator() as one, simulator() as other:
        elsewhere, login = settings(other), one.world.logins()[0]
        async with open_github(elsewhere, needs_credential=False):
            pass  # nothing was collected: whoever mistook the address may correct it
        async with open_github(settings(one), token=one.token_of(one.world.operators()[0])) as collection:
            await begin(collection, login)

        told = rf"{other.url}, but the data in .* was collected from {one.url}.*TIDEGATE_DATA_DIR.*MOVED_FROM"
        with pytest.raises(InvalidSettings, match=told):
            async with open_github(elsewhere, needs_credential=False):
                raise AssertionError("opened")
        async with open_github(settings(one), needs_credential=False):
            pass
        github = GithubSettings(api_url=other.url, moved_from=f"{one.url}/")
        async with open_github(elsewhere.model_copy(update={"github": github}), needs_credential=False):
            pass
        with pytest.raises(InvalidSettings, match="was collected from"):
            async with open_github(settings(one), needs_credential=False):
                raise AssertionError("opened")


async def test_a_process_refused_by_address_does_not_invalidate_the_token(settings: MakeSettings):
    async with simulator() as one, simulator() as other:
        ours, theirs = one.token_of(one.world.operators()[0]), other.token_of(other.world.operators()[1])
        async with open_github(settings(one), token=ours) as collection:
            run_id = await begin(collection, one.world.logins()[0])
            before = await collection.credential_manager.list(), await collection.parts.gate.status(POOL)

            with pytest.raises(InvalidSettings, match="was collected from"):
                async with open_github(settings(other), token=theirs):
                    raise AssertionError("opened")

            after = await collection.credential_manager.list(), await collection.parts.gate.status(POOL)
            assert after[0] == before[0]
            assert [each.name for each in after[1].credentials] == [each.name for each in before[1].credentials]
            assert other.report().calls == 0
            assert (await collection.orchestrator.show(run_id)).status in ACTIVE_RUNS


async def test_a_process_of_another_github_server_neither_serves_nor_fails_the_runs(settings: MakeSettings):
    async with simulator() as one, simulator() as other:
        operator, unknown_caller = one.world.operators()[0], other.world.operators()[1]
        async with open_github(settings(one), needs_credential=False) as collection:
            await collection.credential_manager.add_token(one.token_of(operator))
            run_id = await begin(collection, one.world.logins()[0])
            async with open_credentials(settings(other), "github") as elsewhere:
                await elsewhere.add_token(other.token_of(unknown_caller), name="strange")
                await elsewhere.remove("strange")
                assert (await collection.orchestrator.show(run_id)).status in ACTIVE_RUNS, "ours is there still"

                await elsewhere.add_token(other.token_of(unknown_caller), name="strange")
                await elsewhere.remove(operator)

            run = await collection.orchestrator.show(run_id)
            assert run.status is RunState.FAILED, "a token for another address makes no calls at this one"
            assert "no valid credential" in (run.last_error or "")


def must_rest(tx: Transaction, credential: str, rest: timedelta) -> None:
    """As the answer to a call would have written it."""
    note = {
        "source": "github",
        "credential": credential,
        "bucket": "core",
        "pool": POOL,
        "blocked_until": tx.now + rest,
    }
    tx.execute(insert(allowance_notes).values(note))


@pytest.mark.full
async def test_a_blocked_token_is_not_used_after_a_start_with_an_empty_valkey(settings: MakeSettings, embedded: Valkey):
    async with simulator(latency_ms=1) as sim:
        token, login, rest = sim.token_of(sim.world.operators()[0]), sim.world.logins()[0], timedelta(seconds=2)
        async with open_github(settings(sim), token=token) as collection:
            (known,) = await collection.credential_manager.list()
            await collection.parts.database.transaction(must_rest, known.allowance, rest)
            rested_at = collection.parts.database.clock.now() + rest * 0.95
        await embedded.execute("FLUSHALL")
        before = sim.report().calls

        async with open_github(settings(sim), token=token) as collection:
            subjects = [Subject(user_id=login, login=login)]
            collecting = asyncio.create_task(collect_all(collection, subjects, SilentOutput(Console(stderr=True))))
            async with patience():
                while sim.report().calls == before:
                    await look_again()
            assert collection.parts.database.clock.now() >= rested_at
            assert (await collecting).view.runs[0].status is RunState.COMPLETED


async def test_without_a_credential_no_connection_is_opened_and_both_ways_to_add_one_are_named(settings: MakeSettings):
    async with simulator() as sim:
        with pytest.raises(InvalidSettings, match=r"GITHUB_TOKEN.*tidegate credentials add"):
            async with open_github(settings(sim)):
                raise AssertionError("opened")
        async with open_github(settings(sim), needs_credential=False) as collection:
            with pytest.raises(NoCredential):
                await collection.credential_manager.pool_for("ada")
