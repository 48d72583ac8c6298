"""`tidegate runs`: what it shows, cancels and retries. Nothing of it needs a worker."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import insert, select, update

from tests.cli.batch import tidegate_each
from tests.servers.migrated import migrated_folder
from tests.waiting import look_again, patience
from tidegate.engine import runs
from tidegate.engine.lifecycle import JobState, RunState
from tidegate.engine.reports.progress import jobs_of
from tidegate.engine.run_counters import ended_key, run_ended
from tidegate.engine.source import Subject
from tidegate.engine.tables import collection_runs, job_executions, page_jobs, state_values
from tidegate.settings import Settings
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event
from tidegate.storage.sql.schema import outbox_events
from tidegate.systems.github import GithubSource
from tidegate.systems.github.opening import open_github
from tidegate_simulators.github import GithubSimulator, SimulatorConfig, WorldShape

AWAY = "redis://127.0.0.1:1"


@asynccontextmanager
async def installation(folder: Path) -> AsyncGenerator[Database]:
    """The database of an installation, where a command finds it."""
    data = folder / "data"
    data.mkdir(mode=0o700, exist_ok=True)
    async with await Database.open(f"sqlite:///{await migrated_folder(data)}/tidegate.db") as database:
        yield database


def begin(tx: Transaction, login: str) -> int:
    subject = Subject(user_id=login, login=login, options={"since": "2026-01-01"})
    first = list(GithubSource().first_jobs(subject))
    run_id, _ = runs.begin(tx, runs.NewRun("github", subject, "github", "manual", first))
    return run_id


def complete_with_a_failure(tx: Transaction, run_id: int) -> int:
    """As if a worker had done it: one job well, one for what nobody is shown, one not. Returns the last one."""
    first, *done, failed = [row.id for row in tx.execute(select(page_jobs.c.id).where(page_jobs.c.run_id == run_id))]
    job, run = page_jobs.c, collection_runs.c
    tx.execute(
        update(page_jobs).where(job.id.in_(done)).values(**state_values(JobState.SUCCEEDED), completed_at=tx.now)
    )
    closed = {**state_values(JobState.UNAVAILABLE), "last_error": "403: access blocked", "completed_at": tx.now}
    tx.execute(update(page_jobs).where(job.id == first).values(closed))
    why = {**state_values(JobState.FAILED), "last_error": "451: taken down", "completed_at": tx.now, "attempt_count": 1}
    tx.execute(update(page_jobs).where(job.id == failed).values(why))
    counters = {"succeeded_jobs": 2, "failed_jobs": 1, "calls": 3, "documents": 40, "completed_at": tx.now}
    over = update(collection_runs).where(run.id == run_id)
    tx.execute(over.values(status=RunState.COMPLETED, active_key=None, **counters))
    return failed


async def test_runs_are_listed_and_shown_as_text_and_as_json(tmp_path: Path):
    async with installation(tmp_path) as database:
        octocat = await database.transaction(begin, "octocat")
        failed = await database.transaction(complete_with_a_failure, octocat)
        await database.transaction(begin, "hubot")

    every, mine, found, old, never, active, text, shown, told, jobs, unknown, nonsense = await tidegate_each(
        tmp_path,
        "runs list --json",
        "runs list --json --login @Octocat",
        "runs list --json --search TOCA --since 1h",
        "runs list --json --search TOCA --until 1h",
        "runs list --until yesterday",
        "runs list --json --state active",
        "runs list --limit 1",
        f"runs show {octocat} --json --jobs failed,ready",
        f"runs show {octocat}",
        f"runs show {octocat} --jobs all --limit 2",
        "runs show 99",
        "runs list --state asleep",
    )

    assert [run["login"] for run in json.loads(every.out)["runs"]] == ["hubot", "octocat"]
    assert [run["login"] for run in json.loads(mine.out)["runs"]] == ["octocat"]
    assert [run["login"] for run in json.loads(found.out)["runs"]] == ["octocat"]
    assert json.loads(old.out)["runs"] == []
    assert never.code == 1
    assert "until is 'yesterday': must be a duration" in never.err
    assert [run["login"] for run in json.loads(active.out)["runs"]] == ["hubot"]
    assert "hubot  planning" in text.out
    assert "Older runs: tidegate runs list --before 2" in text.out

    report = json.loads(shown.out)
    assert (report["run"]["id"], report["run"]["calls"]) == (octocat, 3)
    assert [(job["id"], job["last_error"]) for job in report["jobs"]] == [(failed, "451: taken down")]
    assert {kind["kind"]: kind["failed"] for kind in report["kinds"]} == {"USER_BASIC": 0, "USER_EVENTS": 1}
    assert f"run        {octocat} of octocat: completed" in told.out
    assert "options    since 2026-01-01" in told.out
    assert "failures   1 x 451: taken down: events of octocat" in told.out
    assert "withheld   1 x 403: access blocked: profile of octocat" in told.out
    assert "profile 2/2: 1 unavailable" in told.out
    assert [each["reason"] for each in report["unavailable"]] == ["403: access blocked"]
    assert "More: --after 2" in jobs.out

    assert (unknown.code, unknown.out, unknown.err) == (1, "", "there is no run 99")
    assert nonsense.code == 1
    assert "state is 'asleep': must be one of active, planning" in nonsense.err


def fail_once(tx: Transaction, run_id: int) -> int:
    """As if a worker had executed a job twice, and another one had died with it in between. Returns the job."""
    first, *_ = [row.id for row in tx.execute(select(page_jobs.c.id).where(page_jobs.c.run_id == run_id))]
    call = {"sent_at": tx.now, "duration_ms": 84, "method": "GET", "url": "https://api.github.com/users/octocat"}
    common = {"job_id": first, "credential": "work", "started_at": tx.now, "ended_at": tx.now}
    failed = {"status": 502, "response_bytes": 1200, "request_id": "C0DE:1"}
    again = {"fence": 1, "outcome": "retried", "reason": "status 502", "next_try_at": tx.now}
    tx.execute(insert(job_executions).values(**common, **again, call_record=call | failed))
    tx.execute(insert(job_executions).values(**common, fence=3, outcome="postponed", reason="no secret"))
    tx.execute(update(page_jobs).where(page_jobs.c.id == first).values(status=JobState.READY, fence=3))
    return first


async def test_a_job_is_shown_with_its_executions(tmp_path: Path):
    async with installation(tmp_path) as database:
        octocat = await database.transaction(begin, "octocat")
        job = await database.transaction(fail_once, octocat)

    text, shown, fresh, unknown = await tidegate_each(
        tmp_path, f"jobs show {job}", f"jobs show {job} --json", f"jobs show {job + 1}", "jobs show 99"
    )

    lines = text.out.splitlines()
    assert lines[0] == f"job        {job}: profile of octocat"
    assert f"run        {octocat} of octocat (github): planning" in lines
    assert "requests   GET https://api.github.com/users/octocat" in lines
    [first] = [line.split() for line in lines if "retried" in line]
    assert [first[0], *first[2:8]] == ["1", "work", "502", "84", "ms", "1,200", "C0DE:1"]
    assert first[8] == "retried"
    assert any(line.startswith("3 ") and "not sent" in line and "no secret" in line for line in lines)
    assert lines[-1].startswith("1 claim left no result")
    report = json.loads(shown.out)
    assert [one["fence"] for one in report["executions"]] == [1, 3]
    assert report["executions"][0]["call"]["request_id"] == "C0DE:1"
    assert report["executions"][1]["call"] is None
    assert report["unreported_claims"] == 1
    assert (fresh.code, "claim" in fresh.out) == (0, False)
    assert (unknown.code, unknown.out, unknown.err) == (1, "", "there is no job 99")


async def test_failed_jobs_are_retried_together_or_one_by_one(tmp_path: Path):
    async with installation(tmp_path) as database:
        octocat = await database.transaction(begin, "octocat")
        failed = await database.transaction(complete_with_a_failure, octocat)
        hubot = await database.transaction(begin, "hubot")

    several, missing, vague, one, again, others, unknown = await tidegate_each(
        tmp_path,
        f"runs retry {hubot} {hubot}",
        f"runs retry {octocat} 99",
        f"runs retry {octocat} {hubot} --job {failed}",
        f"runs retry {octocat} --job {failed}",
        f"runs retry {octocat} --json",
        f"runs retry {hubot} --job {failed}",
        "runs retry 99",
    )

    assert (several.code, several.out.strip()) == (0, f"run {hubot} has no failed jobs")
    assert (missing.code, missing.out, missing.err) == (1, "", "there is no run 99")
    assert (vague.code, vague.err) == (1, f"job is {failed}: belongs to one run: give only that run")
    assert "1 failed job of run 1 will be retried" in one.out
    assert "tidegate up, or tidegate collect octocat" in one.out
    assert json.loads(again.out)["jobs"] == 0
    assert json.loads(again.out)["run"]["status"] == "running"
    assert (others.code, others.err) == (1, f"job is {failed}: run {hubot} has no such job")
    assert (unknown.code, unknown.err) == (1, "there is no run 99")
    async with installation(tmp_path) as database:
        states = {job.id: job.status for job in await database.read(jobs_of, octocat)}
    assert states[failed] == JobState.ENQUEUED


def bury_the_end(tx: Transaction, run_id: int) -> None:
    """As if its statistics had failed for good: nothing is left to do but to compute them."""
    job, run = page_jobs.c, collection_runs.c
    done = tx.execute(update(page_jobs).where(job.run_id == run_id).values(state_values(JobState.SUCCEEDED))).rowcount
    ended = {"status": RunState.FINALIZING, "total_jobs": done, "succeeded_jobs": done}
    tx.execute(update(collection_runs).where(run.id == run_id).values(ended))
    event = Event(run_ended("github"), key=ended_key(run_id), payload={"run_id": run_id})
    outbox.add(tx, event)
    (number,) = tx.execute(select(outbox_events.c.id).where(outbox_events.c.event_id == event.event_id)).one()
    outbox.mark_dead(tx, number, attempts=8, error="ValueError: no such day")


@pytest.mark.full
async def test_a_run_with_permanently_failed_statistics_is_named_and_not_retried(tmp_path: Path):
    async with installation(tmp_path) as database:
        octocat, hubot = [await database.transaction(begin, login) for login in ("octocat", "hubot")]
        for run_id in (octocat, hubot):
            await database.transaction(bury_the_end, run_id)
    told = f"of run {octocat} failed: ValueError: no such day; retry with tidegate runs retry {octocat}"

    async with GithubSimulator(SimulatorConfig(world=WorldShape(users=1, repositories=1))) as sim:
        collected, shown, programs, retried, again, completed = await tidegate_each(
            tmp_path,
            "collect octocat",
            f"runs show {octocat}",
            f"runs show {octocat} --json",
            f"runs retry {octocat}",
            f"runs retry {octocat} --json",
            "collect octocat --json",
            TIDEGATE_GITHUB__API_URL=sim.url,
            GITHUB_TOKEN=sim.token_of(sim.world.operators()[0]),
        )

    assert collected.code == 1
    assert f"statistics {told}" in collected.out
    assert f"run {octocat} finalizing: 3 of 3 pages" in collected.out
    assert "to continue" not in collected.out, "the same command would not"
    assert f"statistics {told}" in shown.out
    assert json.loads(programs.out)["without_statistics"] == "ValueError: no such day"
    assert f"the statistics of run {octocat} will be computed again" in retried.out
    assert "tidegate up, or tidegate collect octocat" in retried.out
    assert [json.loads(again.out)[name] for name in ("jobs", "statistics")] == [0, False]
    assert [run["status"] for run in json.loads(completed.out)["runs"]] == ["completed"]
    async with installation(tmp_path) as database:
        assert (await database.read(runs.get, hubot)).status is RunState.FINALIZING, "nobody asked for it"


def postpone_all(tx: Transaction, run_id: int) -> None:
    """As if every worker that met them had lacked the token."""
    later = {"status": JobState.READY, "not_before": tx.now, "last_error": "this process was not given GITHUB_TOKEN"}
    tx.execute(update(page_jobs).where(page_jobs.c.run_id == run_id).values(later))


async def test_retried_jobs_are_shown_with_their_reason(tmp_path: Path):
    async with installation(tmp_path) as database:
        octocat = await database.transaction(begin, "octocat")
        await database.transaction(postpone_all, octocat)

    shown, programs = await tidegate_each(tmp_path, f"runs show {octocat}", f"runs show {octocat} --json")

    assert "retrying   3 x this process was not given GITHUB_TOKEN: profile, events of octocat" in shown.out
    assert len(json.loads(programs.out)["retrying"]) == 3


@pytest.mark.full
async def test_a_leader_in_another_process_is_woken_to_recompute_statistics(tmp_path: Path):
    settings = Settings(data_dir=tmp_path / "data")
    async with open_github(settings, needs_credential=False) as collection:
        database, process = collection.parts.database, collection.process()
        running = asyncio.create_task(process.run())
        run_id = await database.transaction(begin, "octocat")
        await database.transaction(bury_the_end, run_id)

        try:
            (retried,) = await tidegate_each(tmp_path, f"runs retry {run_id}")
            async with patience():
                while (await database.read(runs.get, run_id)).status is not RunState.COMPLETED:
                    await look_again()
        finally:
            process.stop()
            await running
    assert "will be computed again" in retried.out


async def test_a_run_is_canceled_once_also_while_valkey_does_not_answer(tmp_path: Path):
    async with installation(tmp_path) as database:
        octocat, hubot = [await database.transaction(begin, login) for login in ("octocat", "hubot")]

    canceled, again = await tidegate_each(tmp_path, f"runs cancel {octocat}", f"runs cancel {octocat} --json")
    without, retried = await tidegate_each(
        tmp_path, f"runs cancel {hubot}", f"runs retry {hubot}", TIDEGATE_VALKEY_URL=AWAY
    )

    assert (canceled.code, canceled.out) == (0, f"run {octocat} of octocat is canceled\n")
    assert json.loads(again.out)["was_active"] is False
    assert without.code == 0
    assert without.out.startswith(f"run {hubot} of hubot is canceled; Valkey is unavailable")
    assert retried.code == 1, "what nobody could be told of is not begun"
    async with installation(tmp_path) as database:
        for run_id in (octocat, hubot):
            assert (await database.read(runs.get, run_id)).status is RunState.CANCELED
            assert {job.status for job in await database.read(jobs_of, run_id)} == {JobState.CANCELED}


async def test_invalid_arguments_are_refused_before_connections_are_opened(tmp_path: Path):
    (tmp_path / "bad.txt").write_text("octocat\nnot a login\n")
    told = await tidegate_each(
        tmp_path,
        "collect",
        "collect octo.cat",
        "collect octocat --since yesterday",
        "collect octocat --since 2999-01-01",
        "collect octocat --kinds stars",
        "collect octocat --api-url ftp://x",
        "collect --file missing.txt",
        "collect --file bad.txt",
    )

    assert [one.code for one in told] == [2, 1, 1, 1, 1, 1, 2, 2]
    for one, words in zip(
        told,
        [
            "at least one subject",
            "subject is 'octo.cat': must be a login",
            "since is 'yesterday': must be a date or a time",
            "is in the future",
            "include is 'stars': must be among essential, conversations, all, profile",
            "api_url is 'ftp://x'",
            "missing.txt cannot be read",
            "bad.txt, line 2",
        ],
        strict=True,
    ):
        assert words in one.err, one
    assert not (tmp_path / "data").exists()
