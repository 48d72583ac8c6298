"""Handlers with a patience of their own, those who want to be told of dead letters, and the count of what waits."""

from datetime import timedelta

import pytest

from tests.runtime.test_relay import AT_ONCE, Log, add, empty, running
from tests.servers.migrated import on_sqlite
from tests.waiting import look_again, patience
from tidegate.core.backoff import Backoff
from tidegate.core.errors import InvalidArgument
from tidegate.runtime.delivery import Handler, Retries, Undeliverable
from tidegate.runtime.relay import Relay
from tidegate.storage.sql import Database, outbox
from tidegate.storage.sql.outbox import Event

HOURS = Backoff(first=timedelta(hours=1), most=timedelta(hours=9), jitter=0)


class Failing(Log):
    """Fails, until it is healed."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error: Exception | None = error

    async def __call__(self, event: Event) -> None:
        await super().__call__(event)
        if self.error is not None:
            raise self.error


class Count:
    """What was told last."""

    def __init__(self) -> None:
        self.value = -1

    def __call__(self, value: int) -> None:
        self.value = value

    async def becomes(self, value: int) -> None:
        async with patience():
            while self.value != value:
                await look_again()


@on_sqlite
async def test_a_handler_sets_the_number_of_attempts(database: Database):
    eager, patient = Failing(RuntimeError("no")), Failing(RuntimeError("no"))
    handlers = [
        Handler("eager", "eager", eager, retries=Retries(AT_ONCE, 2)),
        Handler("patient", "patient", patient, retries=Retries(AT_ONCE, 5)),
    ]
    async with running(Relay(database, handlers, max_attempts=3, backoff=AT_ONCE)):
        await add(database, "a", 1, kind="eager")
        await add(database, "b", 1, kind="patient")
        await empty(database)

    assert (len(eager.events), len(patient.events)) == (2, 5)


@on_sqlite
async def test_of_several_failed_handlers_the_longest_policy_applies(database: Database):
    first, second = Failing(RuntimeError("no")), Failing(RuntimeError("no"))
    handlers = [
        Handler("kind", "eager", first, retries=Retries(AT_ONCE, 1)),
        Handler("kind", "patient", second, retries=Retries(HOURS, 9)),
    ]
    async with running(Relay(database, handlers)):
        before = database.clock.now()
        await add(database, "a", 1)
        await second.has(1)
    due = await database.read(outbox.next_due)

    assert due is not None
    assert due - before >= timedelta(hours=1)


@on_sqlite
@pytest.mark.parametrize("error", [RuntimeError("never"), Undeliverable("never")])
async def test_a_dead_letter_calls_the_callback_of_its_handler(database: Database, error: Exception):
    told: list[tuple[object, str]] = []
    guilty = Handler(
        "kind", "guilty", Failing(error), on_dead_letter=lambda event, why: told.append((event.payload, why))
    )
    innocent = Handler("kind", "innocent", Log(), on_dead_letter=lambda event, why: told.append(("innocent", why)))
    async with running(Relay(database, [guilty, innocent], max_attempts=2, backoff=AT_ONCE)):
        await add(database, "a", 7)
        await empty(database)

    assert told == [(7, f"{type(error).__name__}: never")]


@pytest.mark.every_server
@on_sqlite
async def test_events_waiting_for_a_retry_are_counted(database: Database):
    waiting, handler = Count(), Failing(RuntimeError("not yet"))
    relay = Relay(database, [Handler("kind", "h", handler, retries=Retries(HOURS, 9), on_waiting=waiting)])
    async with running(relay):
        await add(database, "a", 1)
        await add(database, "b", 1)
        await waiting.becomes(2)

    assert waiting.value == 0  # another process may deliver, and counts


async def test_events_waiting_before_the_start_are_counted_and_succeeding_ones_are_not(database: Database):
    waiting, handler = Count(), Failing(RuntimeError("not yet"))
    soon = Backoff(first=timedelta(milliseconds=300), most=timedelta(milliseconds=300), jitter=0)
    handlers = [Handler("kind", "h", handler, retries=Retries(soon, 99), on_waiting=waiting)]
    async with running(Relay(database, handlers)):
        await add(database, "a", 1)
        await handler.has(1)
    async with running(Relay(database, handlers)):
        await waiting.becomes(1)
        handler.error = None
        await waiting.becomes(0)
        assert (await database.read(outbox.depth)).pending == 0


@on_sqlite
async def test_dead_letters_are_not_counted_as_waiting(database: Database):
    waiting, handler = Count(), Failing(RuntimeError("never"))
    soon = Backoff(first=timedelta(milliseconds=200), most=timedelta(milliseconds=200), jitter=0)
    async with running(Relay(database, [Handler("kind", "h", handler, retries=Retries(soon, 2), on_waiting=waiting)])):
        await add(database, "a", 1)
        await waiting.becomes(1)
        await waiting.becomes(0)
        assert (await database.read(outbox.depth)).dead == 1


def test_a_part_of_a_pause_can_be_random():
    exact = Backoff(first=timedelta(minutes=1), most=timedelta(hours=1), jitter=0)
    assert [exact.delay(n) for n in (1, 2, 3, 9)] == [timedelta(minutes=n) for n in (1, 2, 4, 60)]
    nearly = Backoff(first=timedelta(minutes=1), most=timedelta(hours=1), jitter=0.1)
    drawn = [nearly.delay(2).total_seconds() for _ in range(200)]
    assert 108 <= min(drawn) < max(drawn) <= 120
    full = [Backoff(first=timedelta(minutes=1)).delay(1).total_seconds() for _ in range(200)]
    assert 0 <= min(full) < 20 < 40 < max(full) <= 60


@pytest.mark.parametrize("jitter", [-0.1, 1.1])
def test_an_invalid_random_share_is_refused(jitter: float):
    with pytest.raises(InvalidArgument):
        Backoff(jitter=jitter)


def test_zero_attempts_are_refused():
    with pytest.raises(InvalidArgument):
        Retries(AT_ONCE, 0)
