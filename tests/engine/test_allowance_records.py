"""What the upstream said of scarce allowances is written with the results that told so, and nothing else is."""

from datetime import timedelta

import msgspec
import pytest

from tests.engine.batches import begun, claimed, finished, shelf_job, write
from tidegate.core.ids import new_id
from tidegate.engine import allowance_records
from tidegate.engine.job_store import JobResult
from tidegate.primitives.gate import CredentialRecord, LearnedLimits, PoolRecord
from tidegate.storage.sql import Database, Transaction

WINDOW = 1_900_000_000


def saying(one: JobResult, **said: int | None) -> JobResult:
    """The result of a call whose answer said something about the allowance."""
    settled = {"limit": 5000, "window": WINDOW, "resets_in_ms": 600_000, **said} if "remaining" in said else said
    return msgspec.structs.replace(one, settlement=msgspec.structs.replace(one.settlement, **settled))


async def told(database: Database, *answers: dict[str, int]) -> None:
    """Calls of a run, one after the other, with these answers."""
    _, job_ids = await begun(database, new_id(), specs=[shelf_job(f"shelf {n}") for n in range(len(answers))])
    for claim, said in zip(await claimed(database, *job_ids), answers, strict=True):
        await write(database, [saying(finished(claim), **said)])


async def remembered(database: Database) -> list[CredentialRecord]:
    return [note for memory in await database.read(allowance_records.memories) for note in memory.notes]


async def test_a_low_remaining_quota_is_recorded_and_a_high_one_is_not(database: Database):
    await told(database, {"remaining": 4000})
    assert await remembered(database) == []

    await told(database, {"remaining": 30}, {"remaining": 28}, {"remaining": 29})
    (note,) = await remembered(database)
    assert (note.credential, note.bucket, note.limit, note.remaining) == ("librarian", "core", 5000, 28)
    assert note.window == WINDOW
    assert note.resets_in_ms is not None
    assert 590_000 < note.resets_in_ms <= 600_000
    assert note.blocked_ms == 0


async def test_a_newer_window_replaces_the_record_and_a_late_older_one_does_not(database: Database):
    await told(database, {"remaining": 3}, {"remaining": 90, "window": WINDOW + 3600}, {"remaining": 1})
    (note,) = await remembered(database)
    assert (note.window, note.remaining) == (WINDOW + 3600, 90)


@pytest.mark.every_server
async def test_a_block_is_recorded_and_the_longest_one_is_kept(database: Database):
    await told(database, {"blocked_ms": 60_000}, {"blocked_ms": 2_000}, {"remaining": 30})
    (note,) = await remembered(database)
    assert 50_000 < note.blocked_ms <= 60_000
    assert note.remaining == 30


async def test_a_block_of_a_bucket_is_recorded_and_covered_by_one_of_the_credential(database: Database):
    await told(database, {"blocked_ms": 60_000, "rests_bucket": True}, {"blocked_ms": 2_000, "rests_bucket": True})
    (note,) = await remembered(database)
    assert (note.bucket, note.rests_bucket) == ("core", True)
    assert 50_000 < note.blocked_ms <= 60_000

    await told(database, {"blocked_ms": 1_000})
    (note,) = await remembered(database)
    assert (note.rests_bucket, note.blocked_ms > 50_000) == (False, True)


async def test_a_result_with_an_old_fencing_token_still_records_its_block(database: Database):
    _, job_ids = await begun(database)
    (old,) = await claimed(database, *job_ids)
    await claimed(database, *job_ids)
    await write(database, [saying(finished(old), blocked_ms=60_000)])
    assert [note.credential for note in await remembered(database)] == ["librarian"]


async def test_outdated_records_are_deleted(database: Database):
    await told(database, {"remaining": 30, "resets_in_ms": 0}, {"blocked_ms": 1})
    await told(database, {"remaining": 20, "resets_in_ms": 0})

    def later(tx: Transaction) -> None:
        tx.now += timedelta(seconds=1)
        allowance_records.sweep(tx)

    await database.transaction(later)
    assert await remembered(database) == []


async def test_calls_of_the_last_minute_and_running_calls_are_counted_by_pool(database: Database):
    _, job_ids = await begun(database, specs=[shelf_job(f"shelf {n}") for n in range(5)])
    claims = await claimed(database, *job_ids[:3])
    await write(database, [finished(claims[0])])

    assert await database.read(allowance_records.memories) == [PoolRecord(pool="pool", started=3, running=2, notes=[])]

    def in_a_minute(tx: Transaction) -> list[PoolRecord]:
        tx.now += timedelta(seconds=61)
        return allowance_records.memories(tx)

    assert await database.read(in_a_minute) == [PoolRecord(pool="pool", started=0, running=2, notes=[])]


async def test_the_limit_learned_from_a_refusal_is_recorded_while_it_has_an_effect(database: Database):
    def lesson(concurrency: int, ends_in_ms: int) -> LearnedLimits:
        return LearnedLimits(
            concurrency=concurrency, per_minute=100, begins_in_ms=60_000, every_ms=120_000, ends_in_ms=ends_in_ms
        )

    _, job_ids = await begun(database, specs=[shelf_job(f"shelf {n}") for n in range(3)])
    claims = await claimed(database, *job_ids)
    for claim, learned in zip(claims, (lesson(9, 900_000), lesson(4, 600_000), None), strict=True):
        told = saying(finished(claim), blocked_ms=1)
        await write(database, [msgspec.structs.replace(told, learned=learned)])
    await database.transaction(allowance_records.sweep)
    (note,) = await remembered(database)
    assert note.learned is not None
    assert (note.learned.concurrency, note.learned.every_ms) == (4, 120_000)
    assert 50_000 < note.learned.begins_in_ms <= 60_000
    assert 590_000 < note.learned.ends_in_ms <= 600_000

    _, job_ids = await begun(database, new_id())
    (claim,) = await claimed(database, *job_ids)
    over = saying(finished(claim), blocked_ms=1)
    await write(database, [msgspec.structs.replace(over, learned=lesson(2, 0))])
    await database.transaction(allowance_records.sweep)
    assert await remembered(database) == []
