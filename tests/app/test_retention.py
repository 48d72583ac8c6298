"""What is too old is deleted, what is in use stays, and every table and key that could grow has a rule or a reason."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from reference.tables import describe_tables
from sqlalchemy import Table, func, insert, select

from tests.docs.test_keyspace import PAGE
from tests.servers.migrated import migrated_file
from tests.waiting import look_again, patience
from tidegate.connections import build_context
from tidegate.core.clock import ManualClock, to_ms
from tidegate.engine import runs
from tidegate.engine.lifecycle import JobState
from tidegate.engine.retention import delete_ended
from tidegate.engine.tables import (
    collection_cursors,
    collection_runs,
    job_executions,
    page_jobs,
    parked_answers,
    state_values,
)
from tidegate.process import build_process, retention_rules
from tidegate.runtime.retention import AT_ONCE, Retention, RetentionRule
from tidegate.settings import Settings
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event, EventState
from tidegate.storage.sql.schema import handled_events, metadata, outbox_events
from tidegate.storage.valkey import Valkey
from tidegate.system import Context, enabled_systems
from tidegate.systems.campaigns import campaign_store
from tidegate.systems.campaigns.campaign_store import campaign_entries, campaigns
from tidegate.systems.campaigns.model import FIRST_COME, CampaignPlan
from tidegate.systems.campaigns.service import Campaigns

DAY = timedelta(days=1)
FOR_EVER = {
    "gate:epoch": "one value",
    "fence": "one number for each unit",
    "mark": "one number for each coalescer",
    "accepted_writes": "two numbers for each unit",
    "memory": "one number for each limiter",
    "ranking:epoch": "one value for each board",
    "book": "one for each room; deleted with it",
    "gate:pools": "one field for each pool, and for each host that is crawled",
}
"""Keys that stay, and why they do not grow."""


@asynccontextmanager
async def opened(url: str, valkey: Valkey, clock: ManualClock, path: Path) -> AsyncGenerator[Context]:
    async with await Database.open(url, clock=clock) as database:
        yield build_context(Settings(data_dir=path), valkey, database)


async def rules_of(parts: Context) -> list[RetentionRule]:
    """The rules of all systems; they need the connections alone, and not the systems to be open."""
    async with AsyncExitStack() as stack:
        systems = [await stack.enter_async_context(each.open(parts)) for each in enabled_systems(parts.settings)]
        return retention_rules(parts, systems)


async def pruned(parts: Context) -> None:
    """Apply all rules until nothing is old."""
    due: int | None = 0
    rules = await rules_of(parts)
    retention = Retention(lambda: rules, DAY)
    while due is None or due < 1000:
        due = await retention.fire()


async def count(parts: Context, *tables: Table) -> list[int]:
    def counted(tx: Transaction) -> list[int]:
        return [tx.execute(select(func.count()).select_from(table)).scalar_one() for table in tables]

    return await parts.database.read(counted)


async def add(parts: Context, table: Table, *rows: dict[str, Any]) -> None:
    await parts.database.transaction(lambda tx: tx.execute(insert(table), list(rows)))


def a_run(parts: Context, number: int, status: str = "completed", user: str = "ada") -> dict[str, Any]:
    now = parts.database.clock.now()
    counters = dict.fromkeys(("total_jobs", "succeeded_jobs", "failed_jobs", "canceled_jobs"), 0)
    names = {"source": "github", "user_id": user, "login": user, "pool": "p", "triggered_by": "manual"}
    is_over = status in ("completed", "failed", "canceled")
    return {
        **names,
        **counters,
        "id": number,
        "options": {},
        "status": status,
        "active_key": None if is_over else f"github:{user}",
        "created_at": now,
        "completed_at": now if is_over else None,
    }


def a_job(
    parts: Context, number: int, run_id: int, resource: str = "repo:a/b", status: str = "succeeded"
) -> dict[str, Any]:
    spec = {"kind": "REPO_ISSUES", "resource": resource}
    names = {"job_type": "REPO_ISSUES", "resource_key": resource, "page_key": f"page {number}", "spec": spec}
    numbers = {"fence": 1, "attempt_count": 1, "max_attempts": 5}
    return {
        **names,
        **numbers,
        "id": number,
        "run_id": run_id,
        **state_values(JobState(status)),
        "created_at": parts.database.clock.now(),
    }


async def begin(parts: Context, numbers: Sequence[int], jobs: int = 2) -> None:
    """Runs that are over, with their jobs and executions."""
    now = parts.database.clock.now()
    of_jobs = [a_job(parts, run * 100 + n, run) for run in numbers for n in range(jobs)]
    executions = [{"job_id": job["id"], "fence": 1, "credential": "c", "started_at": now} for job in of_jobs]
    parked = [{"job_id": job["id"], "credential": "c", "answer": b"", "parked_at": now} for job in of_jobs[:1]]
    await add(parts, collection_runs, *(a_run(parts, run) for run in numbers))
    await add(parts, page_jobs, *of_jobs)
    await add(parts, job_executions, *executions)
    await add(parts, parked_answers, *parked)


OF_RUNS = (collection_runs, page_jobs, job_executions, parked_answers)


async def test_every_table_has_a_retention_rule_or_a_documented_exception(
    tmp_path: Path, embedded: Valkey, clock: ManualClock
):
    describe_tables()  # imports them all
    async with opened(await migrated_file(tmp_path / "retention.db"), embedded, clock, tmp_path) as parts:
        covered = {table for rule in await rules_of(parts) for table in rule.tables}
    kept = {name for system in enabled_systems(parts.settings) for name in system.kept_tables}

    assert covered & kept == set()
    assert covered | kept == set(metadata.tables)


def test_every_key_expires_or_has_a_documented_exception():
    rows = [line.strip("| \n").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    families = {row[0].strip("`"): row[3] for row in rows if len(row) == 5}

    assert len(families) > 50
    assert {name for name, lives in families.items() if re.search("for ever", lives)} == FOR_EVER.keys()
    assert "`retention.dead_letters`" in families["<name>:dead"]


@pytest.mark.every_server
async def test_old_runs_are_deleted_with_their_jobs_and_rows_in_use_are_kept(
    migrated_url: str, embedded: Valkey, clock: ManualClock, tmp_path: Path
):
    async with opened(migrated_url, embedded, clock, tmp_path) as parts:
        await begin(parts, [1, 2])
        await add(parts, collection_runs, a_run(parts, 3, "running", "bob"), a_run(parts, 4, "finalizing", "eve"))
        await add(parts, page_jobs, a_job(parts, 300, 3, status="running"))
        clock.advance(91 * DAY)
        await begin(parts, [5])
        found_before_they_were_retried = [3, 4, 5]
        assert not await parts.database.transaction(
            delete_ended, found_before_they_were_retried, clock.now() - 90 * DAY, 500
        )
        await pruned(parts)

        assert await count(parts, *OF_RUNS) == [3, 3, 2, 1], "two runs that are not over, and a young one"


@pytest.mark.every_server
async def test_a_run_that_is_retried_during_its_deletion_keeps_its_remaining_rows(
    migrated_url: str, embedded: Valkey, clock: ManualClock, tmp_path: Path
):
    async with opened(migrated_url, embedded, clock, tmp_path) as parts:
        await add(parts, collection_runs, {**a_run(parts, 1), "total_jobs": AT_ONCE + 2, "failed_jobs": AT_ONCE + 2})
        await add(parts, page_jobs, *(a_job(parts, n, 1, status="failed") for n in range(1, AT_ONCE + 3)))
        clock.advance(91 * DAY)
        rules = await rules_of(parts)
        retention = Retention(lambda: rules, DAY)
        while (await count(parts, page_jobs)) == [AT_ONCE + 2]:
            await retention.fire()
        assert len(await parts.database.transaction(runs.retry_failed, 1)) == 2
        await pruned(parts)

        assert await count(parts, collection_runs, page_jobs) == [1, 2]


@pytest.mark.every_server
async def test_cursors_that_no_kept_run_uses_are_deleted(
    migrated_url: str, embedded: Valkey, clock: ManualClock, tmp_path: Path
):
    async with opened(migrated_url, embedded, clock, tmp_path) as parts:
        cursor = {"source": "github", "resource_type": "REPO_ISSUES", "last_run_id": 1, "updated_at": clock.now()}
        await add(
            parts,
            collection_cursors,
            {**cursor, "user_id": "ada", "resource_key": "repo:a/gone"},
            {**cursor, "user_id": "ada", "resource_key": "repo:a/unchanged"},
            {**cursor, "user_id": "bob", "resource_key": "repo:b/b"},
        )
        clock.advance(366 * DAY)
        await add(parts, collection_runs, a_run(parts, 1, "running"))
        await add(parts, page_jobs, a_job(parts, 1, 1, "repo:a/unchanged"))
        await pruned(parts)

        left = await parts.database.read(
            lambda tx: tx.execute(select(collection_cursors.c.resource_key)).scalars().all()
        )
        assert left == ["repo:a/unchanged"]


@pytest.mark.every_server
async def test_a_record_of_a_handled_event_is_kept_while_the_event_can_be_redelivered(
    migrated_url: str, embedded: Valkey, clock: ManualClock, tmp_path: Path
):
    def happened(tx: Transaction) -> list[str]:
        for key in ("dead", "pending"):
            outbox.add(tx, Event("told", key=key, payload={}))
        ids = list(tx.execute(select(outbox_events.c.event_id).order_by(outbox_events.c.id)).scalars())
        dead = outbox_events.update().where(outbox_events.c.event_id == ids[0]).values(state=EventState.DEAD)
        tx.execute(dead)
        return ids

    async with opened(migrated_url, embedded, clock, tmp_path) as parts:
        for event_id in (*await parts.database.transaction(happened), "gone"):
            assert await parts.database.transaction(outbox.once, "handler", event_id)
        clock.advance(31 * DAY)
        await pruned(parts)
        assert await count(parts, handled_events, outbox_events) == [2, 2]

        clock.advance(60 * DAY)
        await pruned(parts)
        assert await count(parts, outbox_events) == [1], "the dead letter is too old"
        await pruned(parts)
        assert await count(parts, handled_events) == [1], "that of the pending event"


async def test_ended_campaigns_are_deleted_with_all_their_rows_and_keys(
    embedded: Valkey, clock: ManualClock, tmp_path: Path
):
    async with opened(await migrated_file(tmp_path / "retention.db"), embedded, clock, tmp_path) as parts:
        shop = Campaigns(embedded, parts.database)
        for ident in ("old", "cut-off", "open"):
            await shop.create(CampaignPlan(id=ident, kind=FIRST_COME, total_count=10))
            await shop.start(ident)
        await add(
            parts,
            campaign_entries,
            *(
                {"campaign": "old", "user_id": f"u{n}", "number": n, "epoch": 1, "outcome": "issued", "points": 0,
                 "decided_at": clock.now()}
                for n in range(3)
            ),
        )  # fmt: skip
        await shop.stop("old")
        await shop.stop("cut-off")
        await parts.database.transaction(campaign_store.begin_removal, "cut-off")
        clock.advance(364 * DAY)
        await pruned(parts)
        assert await count(parts, campaigns, campaign_entries) == [2, 3], "the one whose deletion was cut off is gone"
        clock.advance(2 * DAY)
        await pruned(parts)

        assert [each.id for each in await shop.page()] == ["open"]
        assert await count(parts, campaigns, campaign_entries) == [1, 0]
        assert not [key for key in await embedded.execute("KEYS", "*") if b"old" in key or b"cut-off" in key]
        await shop.close()


async def test_old_dead_letters_of_a_stream_are_deleted(embedded: Valkey, clock: ManualClock, tmp_path: Path):
    async with opened(await migrated_file(tmp_path / "retention.db"), embedded, clock, tmp_path) as parts:
        old, young = to_ms(clock.now() - 91 * DAY), to_ms(clock.now() - DAY)
        for n in range(250):
            await embedded.execute("XADD", parts.jobs.keys.dead, f"{old + n}-0", "payload", "x")
        await embedded.execute("XADD", parts.jobs.keys.dead, f"{young}-0", "payload", "x")
        await pruned(parts)

        assert await embedded.execute("XLEN", parts.jobs.keys.dead) == 1


async def test_the_database_size_is_steady_over_ten_thousand_runs(embedded: Valkey, clock: ManualClock, tmp_path: Path):
    """A hundred runs a day: after the ninetieth day nothing grows any more."""
    async with opened(await migrated_file(tmp_path / "retention.db"), embedded, clock, tmp_path) as parts:
        sizes = list[list[int]]()
        for day in range(0, 100, 5):
            await begin(parts, range(day * 100 + 1, day * 100 + 501))
            await pruned(parts)
            sizes.append(await count(parts, *OF_RUNS[:3]))
            clock.advance(5 * DAY)
        assert sizes[17] == [9_000, 18_000, 18_000]
        assert sizes[19] == sizes[18]


async def test_the_leader_applies_retention_when_it_starts(embedded: Valkey, clock: ManualClock, tmp_path: Path):
    async with opened(await migrated_file(tmp_path / "retention.db"), embedded, clock, tmp_path) as parts:
        await begin(parts, [1])
        clock.advance(91 * DAY)
        async with AsyncExitStack() as stack:
            systems = [await stack.enter_async_context(each.open(parts)) for each in enabled_systems(parts.settings)]
            await stack.enter_async_context(build_process(parts, systems).running())
            await stack.enter_async_context(patience())
            while await count(parts, *OF_RUNS) != [0, 0, 0, 0]:
                await look_again()


async def test_a_failing_rule_does_not_stop_other_rules():
    class Rule:
        tables = ()

        def __init__(self, name: str, *left: int) -> None:
            self.name, self.left = name, list(left)

        async def prune(self, most: int) -> int:
            if not self.left:
                raise RuntimeError(self.name)
            return self.left.pop(0)

    now_ms, broken, whole = 0.0, Rule("broken"), Rule("whole", 500, 3, 0, 0)
    retention = Retention(lambda: [broken, whole], timedelta(seconds=1), now_ms=lambda: now_ms)
    assert [await retention.fire() for _ in range(3)] == [10, 10, 1000], "a batch at a time"
    assert whole.left == [0]
    now_ms = 1000.0
    assert await retention.fire() == 1000
    assert whole.left == []
