"""Workers: every way in which a refresh can end; no event is lost and no limit exceeded."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.systems.snapshots.deployment import WITHIN_S, Deployment, deployed, until
from tests.waiting import lasting_at_least, observe_absence
from tidegate.core.errors import InvalidArgument
from tidegate.core.priority import Priority
from tidegate.primitives.circuit_breaker import CircuitBreakerSettings
from tidegate.primitives.coalescer import AlreadyProcessing, Published, Upgraded
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots import metrics
from tidegate.systems.snapshots.api.routes import view
from tidegate.systems.snapshots.dead_letters import RefreshDeadLetter
from tidegate.systems.snapshots.events import FailedRefresh, FailureReason, Reason, RefreshEvent
from tidegate.systems.snapshots.kinds import GameCharacter
from tidegate.systems.snapshots.model import FoundSubject, SnapshotSubject
from tidegate.systems.snapshots.reads import Freshness
from tidegate.systems.snapshots.requests import RefreshRequest
from tidegate.systems.snapshots.transports.protocol import RefreshTopic
from tidegate_simulators.game import FaultKind, GameSimulator


def refresh_request(key: int | str, priority: Priority = Priority.HIGH, known_version: int = 0) -> RefreshRequest:
    reason = Reason.USER_REQUEST if priority is Priority.HIGH else Reason.PREFETCH
    subject = SnapshotSubject("character", str(key))
    return RefreshRequest(subject=subject, priority=priority, reason=reason, known_version=known_version)


async def first_dead(deployment: Deployment) -> RefreshDeadLetter:
    letters = await until(deployment.snapshots.dead.list)
    return letters[0]


async def _letters(deployment: Deployment, count: int) -> list[RefreshDeadLetter] | None:
    letters = await deployment.snapshots.dead.list()
    return letters if len(letters) == count else None


def skipped() -> float:
    [family] = metrics.OBSOLETE_EVENT_SKIPPED.collect()
    return family.samples[0].value


def breaker_state() -> float:
    [family] = metrics.DB_CIRCUIT_BREAKER_STATE.collect()
    return family.samples[0].value


# What the upstream answers


async def test_a_refusal_of_the_upstream_is_a_dead_letter_immediately(deployment: Deployment):
    deployment.sim.faults.inject(FaultKind.BAD_REQUEST, times=9, subject=7)
    async with deployment.working():
        await deployment.snapshots.requests.publish(refresh_request(7))
        letter = await first_dead(deployment)
        await until(lambda: _is_done(deployment))

    dead = letter.update
    assert (dead.reason, dead.retries, dead.subject_id) == (FailureReason.UPSTREAM_4XX, 0, "character/7")
    assert dead.worker == deployment.parts.owner
    assert RefreshEvent.decode(bytes(dead.event)).reason is Reason.USER_REQUEST
    assert deployment.sim.calls_of(7) == 1
    assert await deployment.troubled() == [(SnapshotSubject("character", "7"), "FAILED", "UPSTREAM_4XX", 1)]


async def test_a_failing_upstream_is_retried(deployment: Deployment):
    deployment.sim.faults.inject(FaultKind.UNAVAILABLE, times=1, subject=7)
    deployment.sim.faults.inject(FaultKind.RESET, times=1, subject=7)
    async with deployment.working():
        answer = await deployment.until_fresh(7)

    assert deployment.is_true(7, answer)
    assert deployment.sim.calls_of(7) == 3
    assert await deployment.snapshots.dead.list() == []
    assert await deployment.troubled() == []


async def test_the_status_shows_that_a_refresh_is_being_retried(tmp_path: Path, embedded: Valkey, sim: GameSimulator):
    async with deployed(tmp_path, embedded, sim) as deployment:
        sim.faults.inject(FaultKind.BAD_GATEWAY, times=1, subject=7)
        sim.faults.inject(FaultKind.TIMEOUT, times=1, subject=7)  # which takes a second
        async with deployment.working():
            await deployment.snapshots.requests.publish(refresh_request(7))
            [(_, state, reason, tries)] = await until(deployment.troubled)
            await until(lambda: _has_row(deployment, 7))
            assert await deployment.troubled() == []

    assert (state, reason, tries) == ("RETRYING", "UPSTREAM_5XX", 1)


async def test_three_consecutive_failures_are_a_dead_letter(deployment: Deployment):
    deployment.sim.faults.inject(FaultKind.SERVER_ERROR, times=9, subject=7)
    async with deployment.working():
        await deployment.snapshots.requests.publish(refresh_request(7))
        letter = await first_dead(deployment)

    assert (letter.update.reason, letter.update.retries) == (FailureReason.UPSTREAM_5XX, 2)
    assert deployment.sim.calls_of(7) == 3
    assert await deployment.troubled() == [(SnapshotSubject("character", "7"), "FAILED", "UPSTREAM_5XX", 3)]


async def test_an_unreadable_answer_is_a_dead_letter_with_a_traceback(deployment: Deployment):
    deployment.sim.faults.inject(FaultKind.INVALID, subject=7)
    async with deployment.working():
        await deployment.snapshots.requests.publish(refresh_request(7))
        letter = await first_dead(deployment)

    assert (letter.update.reason, letter.update.retries) == (FailureReason.PARSE_ERROR, 0)
    assert "Unreadable" in (letter.update.trace or "")
    assert deployment.sim.api_key not in str(letter)


async def test_an_answer_for_another_subject_is_a_dead_letter_and_nothing_is_stored(deployment: Deployment):
    async with deployment.working():
        old = await deployment.until_fresh(7)
        deployment.sim.faults.inject(FaultKind.WRONG, times=2)
        await deployment.snapshots.refresh("character", "7")
        await deployment.snapshots.requests.publish(refresh_request(8))
        letters = await until(lambda: _letters(deployment, 2))
        rows = [await deployment.row(key) for key in (7, 8)]

    assert {each.update.reason for each in letters} == {FailureReason.WRONG_SUBJECT}
    assert {each.update.message for each in letters} == {
        "the subject '7' was requested, but the answer is for '8'",
        "the subject '8' was requested, but the answer is for '9'",
    }
    assert rows[0] is not None
    assert (rows[0].hash, rows[1]) == (old.kept.hash, None)


@pytest.mark.parametrize(
    ("identity", "upstream_id", "is_ours"),
    [("7", None, True), ("u7", "u7", True), ("u7", None, False), ("8", "u7", False), ("", None, False)],
)
async def test_an_answer_is_matched_by_the_requested_key_or_id(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, identity: str, upstream_id: str | None, is_ours: bool
):
    def read(*_: object) -> FoundSubject:
        return FoundSubject(b"{}", identity)

    monkeypatch.setattr(GameCharacter, "read", read)
    subject = SnapshotSubject("character", "7")
    asked = RefreshRequest(subject=subject, priority=Priority.HIGH, reason=Reason.USER_REQUEST, upstream_id=upstream_id)
    async with deployment.working():
        await deployment.snapshots.requests.publish(asked)
        await until(lambda: _is_done(deployment))
        row, letters = await deployment.row(7), await deployment.snapshots.dead.list()

    assert (row is not None, len(letters)) == ((True, 0) if is_ours else (False, 1))


async def test_a_snapshot_is_stored_as_json_on_one_line_or_becomes_a_dead_letter(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
):
    brought = {
        "7": FoundSubject(b'{\r\n  "name": "Ann Lee"\n}\n', "7", "7"),
        "8": FoundSubject(b"name: Ann", "8"),
        "9": FoundSubject(b'{"name": "\xff"}', "9"),
        "10": FoundSubject(b"[" * 100_000 + b"]" * 100_000, "10"),
        "11": FoundSubject(b"{}", "11", "x" * 201),
        "12": FoundSubject(b"{}", "12", "\0"),
    }
    monkeypatch.setattr(GameCharacter, "read", lambda _self, key, _answer: brought[key])  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    async with deployment.working():
        for key in brought:
            await deployment.snapshots.requests.publish(refresh_request(key))
        letters = await until(lambda: _dead(deployment, 5))
        answer = await deployment.until_fresh(7)

    assert answer.body == b'{"name":"Ann Lee"}'
    assert {letter.update.reason for letter in letters} == {FailureReason.PARSE_ERROR}
    assert [deployment.sim.calls_of(int(key)) for key in brought] == [1] * 6


async def test_a_429_pauses_all_workers_and_loses_nothing(deployment: Deployment):
    deployment.sim.faults.inject(FaultKind.REFUSED, times=2)
    async with deployment.working():
        with lasting_at_least(0.9):  # the upstream asked for a second
            answers = await asyncio.gather(*(deployment.until_fresh(key) for key in range(1, 21)))

    assert all(deployment.is_true(key, answer) for key, answer in zip(range(1, 21), answers, strict=True))
    assert await deployment.snapshots.dead.list() == []
    assert await deployment.pending() == 0


async def test_an_unknown_event_is_a_dead_letter_and_delays_no_other(deployment: Deployment):
    strange = [
        b"no JSON \xff",
        b'{"schemaVersion": "2.0"}',
        _event("nothing", 5),
        _event("character/7", 0),
        _event("character/7", 2**63),
        b'{"schemaVersion": "1.1", "note": "\xff"}',
        b'{"schemaVersion": "1.1", "note": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        _event("pirate/7", 5),
    ]
    await deployment.snapshots.transport.publish(RefreshTopic.HIGH, [("character/7", each) for each in strange])
    async with deployment.working():
        await deployment.until_fresh(8)
        letters = await until(lambda: _dead(deployment, len(strange)))

    assert {letter.update.reason for letter in letters} == {FailureReason.UNKNOWN_SCHEMA}
    assert await deployment.pending() == 0
    with pytest.raises(InvalidArgument, match="cannot be replayed"):
        await deployment.snapshots.dead.replay(letters[0].id)


async def test_an_unreadable_dead_letter_is_listed_as_such(deployment: Deployment):
    letter = FailedRefresh.of(
        event=_event("character/7", 5),
        subject_id="character/7",
        reason=FailureReason.UPSTREAM_4XX,
        message="no",
        trace=None,
        retries=0,
        failed_at=datetime(2026, 11, 15, tzinfo=UTC),
        worker="w",
    ).encode()
    values = [
        b"foreign \xff",
        letter.replace(b"UPSTREAM_4XX", b"OF_TOMORROW"),
        letter.replace(b'"e"', b'"\xff"'),
        letter,
    ]
    await deployment.snapshots.transport.publish(RefreshTopic.DEAD, [("character/7", each) for each in values])

    letters = await deployment.snapshots.dead.list()

    assert [each.update.reason for each in letters] == [FailureReason.UNKNOWN_SCHEMA] * 3 + [FailureReason.UPSTREAM_4XX]
    assert {each.update.subject_id for each in letters} == {"character/7"}
    assert view(letters[0]).event == "foreign \\xff"
    with pytest.raises(InvalidArgument, match="cannot be replayed"):
        await deployment.snapshots.dead.replay(letters[1].id)
    assert await deployment.snapshots.dead.drop(letters[0].id)


async def test_a_replayed_dead_letter_is_processed_under_a_new_version(deployment: Deployment):
    deployment.sim.faults.inject(FaultKind.BAD_REQUEST, subject=7)
    async with deployment.working():
        outcome = await deployment.snapshots.requests.publish(refresh_request(7))
        letter = await first_dead(deployment)
        replayed = await deployment.snapshots.dead.replay(letter.id)
        answer = await deployment.until_fresh(7)

    assert isinstance(replayed, Published)
    assert replayed.version > outcome.version
    assert deployment.is_true(7, answer)
    assert await deployment.snapshots.dead.list() == []
    assert await deployment.troubled() == []


async def test_a_dead_letter_stays_while_another_worker_has_the_lock(deployment: Deployment):
    """The worker may be dead; then the dead letter is all that is left."""
    deployment.sim.faults.inject(FaultKind.BAD_REQUEST, subject=7)
    async with deployment.working():
        await deployment.snapshots.requests.publish(refresh_request(7))
        letter = await first_dead(deployment)
    await until(lambda: _published(deployment, refresh_request(7)))

    assert isinstance(await deployment.snapshots.dead.replay(letter.id), AlreadyProcessing)
    assert await deployment.snapshots.dead.list() == [letter]


async def test_readers_do_not_repeat_a_failed_refresh_and_an_explicit_refresh_does(deployment: Deployment):
    deployment.sim.faults.inject(FaultKind.BAD_REQUEST, times=1, subject=7)
    async with deployment.working():
        async with asyncio.timeout(WITHIN_S / 2):  # who waits is told, and does not find out in the end
            failed = await deployment.wait(7)
        again = await deployment.wait(7)
        calls = deployment.sim.calls_of(7)
        asked = await deployment.snapshots.refresh("character", "7")
        fresh = await deployment.until_fresh(7)

    assert (failed.freshness, failed.update_queued, failed.estimated_wait_ms) == (Freshness.NOT_FOUND, False, None)
    assert failed.kept.failed is not None
    assert (failed.kept.failed.reason, failed.kept.failed.message) == ("UPSTREAM_4XX", "the upstream answered 400")
    assert again.kept.failed == failed.kept.failed
    assert calls == 1
    assert isinstance(asked, Published)  # its lock was released with the failure
    assert fresh.kept.failed is None


async def test_a_stale_snapshot_with_a_failed_refresh_is_returned_with_the_failure(
    tmp_path: Path, embedded: Valkey, sim: GameSimulator
):
    async with deployed(tmp_path, embedded, sim, ttl=_ms(1), failed_for=_ms(60_000)) as deployment:
        async with deployment.working():
            await deployment.snapshots.refresh("character", "7")
            await until(lambda: deployment.row(7))
            sim.faults.inject(FaultKind.SERVER_ERROR, times=3, subject=7)
            await until(lambda: _published(deployment, refresh_request(7)))
            stale = await deployment.wait(7)
        async with deployed(tmp_path, embedded, sim, ttl=_ms(1)) as beside:
            other = await beside.read(7)

    for answer in (stale, other):  # the one was told, the other finds it on the server
        assert (answer.freshness, answer.update_queued) == (Freshness.STALE, False)
        assert answer.body is not None
        assert answer.kept.failed is not None
        assert answer.kept.failed.reason == "UPSTREAM_5XX"
    assert b'"failure":{"reason":"UPSTREAM_5XX","message":"' in stale.encode()


# Versions and priorities


async def test_a_high_request_overtakes_a_low_one_whose_event_is_skipped_without_a_call(deployment: Deployment):
    before = skipped()
    low = await deployment.snapshots.requests.publish(refresh_request(7, Priority.LOW))
    high = await deployment.snapshots.requests.publish(refresh_request(7))
    async with deployment.working():
        await deployment.until_fresh(7)
        await until(lambda: _is_done(deployment))

    assert isinstance(high, Upgraded)
    assert high.version > low.version
    assert deployment.sim.calls_of(7) == 1
    assert skipped() == before + 1
    row = await deployment.row(7)
    assert row is not None
    assert row.version >= high.version


async def test_low_priority_does_not_delay_high_priority(deployment: Deployment):
    refresh_requests = [refresh_request(key, Priority.LOW) for key in range(100, 900)]
    await deployment.snapshots.requests.publish_many(refresh_requests)
    async with deployment.working():
        await deployment.until_fresh(7)
        left = await deployment.pending()

    assert left > 0  # it was done while LOW still had work


async def test_versions_continue_above_the_row_when_the_server_lost_its_data(deployment: Deployment, embedded: Valkey):
    future = 2**51
    await deployment.snapshots.requests.publish(refresh_request(7, known_version=future))
    async with deployment.working():
        await deployment.until_fresh(7)
        await embedded.execute("FLUSHALL")
        await deployment.snapshots.requests.publish(refresh_request(7, known_version=future + 1))
        row = await until(lambda: _newer(deployment, 7, future + 1))

    assert row.version > future + 1


async def test_the_lock_is_released_when_the_refresh_is_done(deployment: Deployment):
    async with deployment.working():
        answer = await deployment.until_fresh(7)
        again = await until(lambda: _published(deployment, refresh_request(7, known_version=answer.kept.version)))

    assert again.version > answer.kept.version


async def test_an_event_that_kills_every_worker_becomes_a_dead_letter(
    tmp_path: Path, embedded: Valkey, sim: GameSimulator
):
    async with deployed(tmp_path, embedded, sim, most_deliveries=2) as deployment:
        await deployment.snapshots.requests.publish(refresh_request(7))
        for _ in range(2):
            doomed = deployment.snapshots.transport.consumer(RefreshTopic.HIGH, "high-worker")
            [delivery] = await doomed.read(1, 5)
            await doomed.retry([delivery], "it died")
        async with deployment.working():
            letter = await first_dead(deployment)

    assert letter.update.reason is FailureReason.WORKER_CRASHED
    assert sim.calls_of(7) == 0


async def test_many_results_are_written_in_few_batches_and_no_limit_is_exceeded(deployment: Deployment):
    before = _written()
    keys = range(1, 301)
    outcomes = await deployment.snapshots.requests.publish_many([refresh_request(key) for key in keys])
    async with deployment.working():
        await until(lambda: _is_done(deployment))

    assert all(isinstance(outcome, Published) for outcome in outcomes)
    assert _written() - before < 200
    assert deployment.sim.report().broken == 0
    assert all([await deployment.row(key) is not None for key in keys])


# Servers that are away


@asynccontextmanager
async def locked(folder: Path) -> AsyncGenerator[None]:
    """Somebody else writes, and does not end: to us the database is silent."""
    other = sqlite3.connect(folder / "tidegate.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


async def test_during_a_database_outage_results_are_held_and_none_is_lost(
    tmp_path: Path, embedded: Valkey, sim: GameSimulator
):
    quick = CircuitBreakerSettings(window=3, open_for=timedelta(milliseconds=300), trials=1)
    within = timedelta(milliseconds=150)
    async with (
        deployed(tmp_path, embedded, sim, breaker=quick, write_within=within) as deployment,
        deployment.working(),
    ):
        async with locked(tmp_path):
            await deployment.snapshots.requests.publish_many([refresh_request(key) for key in range(1, 6)])
            await until(lambda: sim.calls_of(5) == 1)
            await until(lambda: breaker_state() == 2)
            await deployment.snapshots.requests.publish(refresh_request(6))
            await observe_absence()  # nothing is read meanwhile
            assert sim.calls_of(6) == 0
            assert await deployment.pending() == 6
            assert await deployment.snapshots.dead.list() == []
        await until(lambda: _is_done(deployment))
        answers = [await deployment.read(key) for key in range(1, 7)]

    assert {answer.freshness for answer in answers} == {Freshness.FRESH}
    assert [sim.calls_of(key) for key in range(1, 7)] == [1] * 6
    assert await nobody_is_left(deployment)


async def test_a_stop_during_a_database_outage_returns_all_events(tmp_path: Path, embedded: Valkey, sim: GameSimulator):
    async with deployed(tmp_path, embedded, sim, write_within=timedelta(milliseconds=100)) as deployment:
        async with locked(tmp_path):
            async with deployment.working():
                await deployment.snapshots.requests.publish(refresh_request(5))
                await until(lambda: sim.calls_of(5) == 1)
            assert await deployment.pending() == 1
        async with deployment.working():
            answer = await deployment.until_fresh(5)

    assert deployment.is_true(5, answer)


async def test_a_stop_immediately_returns_events_waiting_for_a_permit(deployment: Deployment):
    await deployment.snapshots.limiter.pause(timedelta(hours=1))
    await deployment.snapshots.requests.publish_many([refresh_request(key) for key in range(1, 31)])
    async with deployment.working():
        await until(lambda: _nothing_waits(deployment))

    assert await deployment.pending() == 30
    assert [(await stream.status()).lag for stream in deployment.snapshots.recoverable] == [30, 0]
    assert deployment.sim.report().calls == 0


async def nobody_is_left(deployment: Deployment) -> bool:
    """Whether all consumers have left their groups."""
    return all([not (await stream.status()).consumers for stream in deployment.snapshots.recoverable])


async def _is_done(deployment: Deployment) -> bool:
    return await deployment.pending() == 0


async def _has_row(deployment: Deployment, key: int) -> bool:
    return await deployment.row(key) is not None


async def _nothing_waits(deployment: Deployment) -> bool:
    """Whether everything was given to a worker."""
    return all([(await stream.status()).lag == 0 for stream in deployment.snapshots.recoverable])


async def _dead(deployment: Deployment, count: int) -> list[RefreshDeadLetter] | None:
    letters = await deployment.snapshots.dead.list()
    return letters if len(letters) == count else None


async def _newer(deployment: Deployment, key: int, than: int) -> object:
    row = await deployment.row(key)
    return row if row is not None and row.version > than else None


async def _published(deployment: Deployment, wanted: RefreshRequest) -> object:
    outcome = await deployment.snapshots.requests.publish(wanted)
    return outcome if isinstance(outcome, Published) else None


def _written() -> float:
    [family] = metrics.DB_UPSERT_DURATION.collect()
    return next(sample.value for sample in family.samples if sample.name.endswith("_count"))


def _event(subject_id: str, version: int) -> bytes:
    fields = {
        "schemaVersion": "1.1",
        "eventId": "e",
        "subjectId": subject_id,
        "priority": "HIGH",
        "reason": "STALE",
        "requestedAt": datetime(2026, 11, 15, tzinfo=UTC),
        "version": version,
    }
    return msgspec.json.encode(fields)


def _ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)
