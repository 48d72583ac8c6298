"""The relay: every committed event reaches its handlers, in order per key, and nobody waits for a stranger."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, update

from tests.servers.migrated import migrated_on, on_sqlite
from tests.servers.proxy import Proxy
from tests.servers.sql import SERVERS, SqlName
from tests.waiting import look_again, observe_absence, patience
from tidegate.core.backoff import Backoff
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument
from tidegate.core.telemetry.metrics import REGISTRY
from tidegate.runtime import relay as relay_module
from tidegate.runtime.delivery import Handler, Outcome, Undeliverable
from tidegate.runtime.relay import Relay
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event
from tidegate.storage.sql.schema import outbox_events

AT_ONCE = Backoff(first=timedelta(microseconds=1), most=timedelta(microseconds=1))


class Log:
    """A handler that remembers, and lets tests wait for a number of events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = asyncio.Condition()

    async def __call__(self, event: Event) -> None:
        async with self._news:
            self.events.append(event)
            self._news.notify_all()

    async def has(self, count: int) -> None:
        async with patience(), self._news:
            await self._news.wait_for(lambda: len(self.events) >= count)

    @property
    def payloads(self) -> list[Any]:
        return [event.payload for event in self.events]


@asynccontextmanager
async def running(relay: Relay) -> AsyncGenerator[asyncio.Event]:
    """Run `relay` for a while, and stop it in good order."""
    stopping = asyncio.Event()
    task = asyncio.create_task(relay.run(stopping))
    try:
        yield stopping
        stopping.set()
        async with patience():
            await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def relay_of(database: Database, handle: Callable[[Event], Awaitable[None]], **options: Any) -> Relay:
    options.setdefault("backoff", AT_ONCE)
    return Relay(database, [Handler("kind", "handler", handle)], **options)


async def add(database: Database, key: str, *payloads: Any, kind: str = "kind") -> None:
    await database.transaction(outbox.add, *(Event(kind, key, payload) for payload in payloads))


async def empty(database: Database) -> None:
    """Wait until nothing is pending. A removal is announced to nobody, so the table has to be asked."""
    async with patience():
        while (await database.read(outbox.depth)).pending:
            await look_again()


async def test_a_committed_event_is_handled_and_its_row_removed(database: Database) -> None:
    log = Log()
    async with running(relay_of(database, log)):
        event = Event("kind", "key", {"n": 1})
        await database.transaction(outbox.add, event)
        await log.has(1)
    assert log.events == [event]
    assert await database.read(outbox.depth) == outbox.OutboxDepth(0, 0, None)


@on_sqlite
async def test_a_relay_that_ended_reports_no_events_in_progress(database: Database) -> None:
    """Another process has them now, and the greatest of all figures is believed."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handle(_: Event) -> None:
        begun.set()
        await may_end.wait()

    async with running(relay_of(database, handle)) as stopping:
        await add(database, "key", 1, 2, 3)
        await begun.wait()
        in_hand = REGISTRY.get_sample_value("outbox_depth")
        stopping.set()
        may_end.set()

    assert (in_hand, REGISTRY.get_sample_value("outbox_depth")) == (3, 0)


async def test_a_rolled_back_event_is_never_handled(database: Database) -> None:
    def fail(tx: Transaction) -> None:
        outbox.add(tx, Event("kind", "key", "never"))
        raise KeyError

    log = Log()
    async with running(relay_of(database, log)):
        with pytest.raises(KeyError):
            await database.transaction(fail)
        await add(database, "key", "after")
        await log.has(1)
    assert log.payloads == ["after"]


@on_sqlite
async def test_events_committed_before_the_start_are_handled(database: Database) -> None:
    """Those of a process that died before it could ring, or of the time without a leader."""
    await add(database, "key", 1, 2, 3)
    log = Log()
    async with running(relay_of(database, log)):
        await log.has(3)
    assert log.payloads == [1, 2, 3]


@on_sqlite
async def test_order_is_kept_per_key_while_keys_are_handled_concurrently(database: Database) -> None:
    at_once, most = 0, 0
    order: dict[str, list[int]] = defaultdict(list)
    log = Log()

    async def handle(event: Event) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        order[event.key].append(event.payload)
        at_once -= 1
        await log(event)

    async with running(relay_of(database, handle, concurrency=4)):
        await asyncio.gather(*(_add_slowly(database, f"key {k}", 15) for k in range(8)))
        await log.has(8 * 15)
    assert dict(order) == {f"key {k}": list(range(15)) for k in range(8)}
    assert 1 < most <= 4


async def _add_slowly(database: Database, key: str, count: int) -> None:
    for n in range(count):
        await add(database, key, n)


@on_sqlite
async def test_a_failing_event_delays_only_its_own_key_and_is_retried(database: Database) -> None:
    log, tries = Log(), 0
    healed = asyncio.Event()

    async def handle(event: Event) -> None:
        nonlocal tries
        if event.payload == "bad" and not healed.is_set():
            tries += 1
            raise RuntimeError("not yet")
        await log(event)

    async with running(relay_of(database, handle, max_attempts=10**6)):
        await add(database, "sick", "bad", "behind")
        for n in range(5):
            await add(database, "well", n)
        await log.has(5)
        assert log.payloads == [0, 1, 2, 3, 4]
        healed.set()
        await log.has(7)
    assert log.payloads[5:] == ["bad", "behind"]
    assert tries >= 1


async def test_the_time_of_the_next_attempt_is_durable(migrated_url: str) -> None:
    """The number of tries and the due time are in the row, so a new relay goes on where the old one stopped."""
    clock = ManualClock()
    async with await Database.open(migrated_url, clock=clock) as database:
        tried, log = Log(), Log()

        async def fail_first(event: Event) -> None:
            await tried(event)
            if event.payload == "first":
                raise RuntimeError("not yet")

        minutes = Backoff(first=timedelta(minutes=4), most=timedelta(minutes=4))
        await add(database, "key", "first", "second")
        async with running(relay_of(database, fail_first, backoff=minutes)):
            await tried.has(1)
            for marker in range(3):  # each is a ring, and a pass over the table
                await add(database, "other", marker)
                await tried.has(2 + marker)
        assert tried.payloads == ["first", 0, 1, 2]
        async with running(relay_of(database, log)):
            await add(database, "other", "marker")
            await log.has(1)
            assert log.payloads == ["marker"]
        due = await database.read(outbox.next_due)
        assert due is not None
        clock.advance(due - clock.now())
        async with running(relay_of(database, log)):
            await log.has(3)
        assert log.payloads == ["marker", "first", "second"]


@on_sqlite
async def test_a_due_time_wakes_the_relay_without_a_signal(database: Database) -> None:
    log, tries = Log(), 0

    async def handle(event: Event) -> None:
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise RuntimeError("not yet")
        await log(event)

    short = Backoff(first=timedelta(milliseconds=30), most=timedelta(milliseconds=30))
    async with running(relay_of(database, handle, backoff=short)):
        await add(database, "key", 1)
        await log.has(1)
    assert tries == 4


async def test_after_the_last_attempt_an_event_is_a_dead_letter_and_its_key_continues(database: Database) -> None:
    log = Log()

    async def handle(event: Event) -> None:
        if event.payload == "bad":
            raise RuntimeError("never")
        await log(event)

    async with running(relay_of(database, handle, max_attempts=3)):
        await add(database, "key", "bad", "good")
        await log.has(1)
    (letter,) = await database.read(outbox.dead_letters)
    assert (letter.event().payload, letter.attempts) == ("bad", 3)
    assert letter.last_error == "handler: RuntimeError: never"


@pytest.mark.every_server
@on_sqlite
async def test_a_replayed_dead_letter_is_delivered_like_a_new_event(database: Database) -> None:
    log, healed = Log(), False

    async def handle(event: Event) -> None:
        if not healed:
            raise Undeliverable("not today")
        await log(event)

    async with running(relay_of(database, handle)):
        await add(database, "key", 1)
        await empty(database)
        healed = True
        assert await database.transaction(lambda tx: outbox.replay(tx, everything=True)) == 1
        await log.has(1)
    assert log.payloads == [1]


@on_sqlite
async def test_a_permanently_failing_event_is_a_dead_letter_immediately(database: Database) -> None:
    async def refuse(event: Event) -> None:
        raise Undeliverable("the subject is gone")

    async with running(relay_of(database, refuse)):
        await add(database, "key", 1)
        await empty(database)
    (letter,) = await database.read(outbox.dead_letters)
    assert (letter.attempts, letter.last_error) == (1, "handler: Undeliverable: the subject is gone")


@on_sqlite
async def test_an_event_without_a_handler_is_reported(database: Database) -> None:
    async with running(relay_of(database, Log())):
        await add(database, "key", 1, kind="unheard of")
        await empty(database)
    (letter,) = await database.read(outbox.dead_letters)
    assert letter.last_error == "no handler for this kind of event"


@pytest.mark.every_server
@on_sqlite
async def test_an_event_with_an_invalid_payload_is_a_dead_letter(database: Database) -> None:
    await add(database, "key", 1)
    await database.transaction(lambda tx: tx.execute(update(outbox_events).values(payload=outbox_events.c.kind)))
    log = Log()
    async with running(relay_of(database, log)):
        await add(database, "key", "good")
        await log.has(1)
    (letter,) = await database.read(outbox.dead_letters)
    assert (letter.last_error or "").startswith("its payload cannot be read")


@on_sqlite
async def test_every_handler_of_a_kind_is_called_although_one_fails(database: Database) -> None:
    first, second, tries = Log(), Log(), 0

    async def flaky(event: Event) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise RuntimeError
        await first(event)

    relay = Relay(database, [Handler("kind", "flaky", flaky), Handler("kind", "steady", second)], backoff=AT_ONCE)
    async with running(relay):
        await add(database, "key", 1)
        await first.has(1)
    assert len(second.events) == 2  # at least once: with the failed try, and with the good one


class Unspeakable(Exception):
    """Cannot even be told."""

    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize("error", [ValueError("cannot read \udcff"), ValueError("a \0 in it"), Unspeakable()])
async def test_an_error_whose_text_cannot_be_stored_affects_no_other_event(
    database: Database, error: Exception
) -> None:
    log = Log()

    async def handle(event: Event) -> None:
        if event.payload == "bad":
            raise error
        await log(event)

    await add(database, "sick", "bad", "behind")
    await add(database, "well", 1, 2, 3)
    async with running(relay_of(database, handle, max_attempts=2)):
        await log.has(4)
        await empty(database)
    (letter,) = await database.read(outbox.dead_letters)
    assert (letter.last_error or "").startswith(f"handler: {type(error).__name__}: ")


async def test_an_unwritable_outcome_affects_only_its_own_key(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, refused = Log(), 0
    settle_truly = relay_module.settle

    def settle(tx: Transaction, outcomes: Sequence[Outcome]) -> None:
        nonlocal refused
        if refused < 2 and any(outcome.row.key == "sick" for outcome in outcomes):
            refused += 1  # once with the others, and once alone
            raise ZeroDivisionError
        settle_truly(tx, outcomes)

    async def handle(event: Event) -> None:
        if event.payload == "bad":
            raise Undeliverable
        await log(event)

    monkeypatch.setattr(relay_module, "settle", settle)
    monkeypatch.setattr(relay_module, "_WRITE_AGAIN_AFTER_S", 0.05)
    await add(database, "sick", "bad", "behind")
    await add(database, "well", 1, 2, 3)
    async with running(relay_of(database, handle)):
        await log.has(4)
        await empty(database)
    assert refused == 2
    assert log.payloads[-1] == "behind"
    (letter,) = await database.read(outbox.dead_letters)
    assert letter.event().payload == "bad"


@on_sqlite
async def test_a_hanging_handler_has_failed(database: Database) -> None:
    async def hang(event: Event) -> None:
        await asyncio.Event().wait()

    async with running(relay_of(database, hang, max_attempts=1, handler_timeout=timedelta(milliseconds=20))):
        await add(database, "key", 1)
        await empty(database)
    (letter,) = await database.read(outbox.dead_letters)
    assert letter.last_error == "handler: TimeoutError"


@on_sqlite
async def test_a_handler_that_raises_a_cancellation_has_failed(database: Database) -> None:
    async def cancelled(event: Event) -> None:
        raise asyncio.CancelledError

    async with running(relay_of(database, cancelled, max_attempts=1)):
        await add(database, "key", 1)
        await empty(database)
    (letter,) = await database.read(outbox.dead_letters)
    assert letter.last_error == "handler: CancelledError"


@on_sqlite
async def test_a_stop_finishes_running_handlers_and_leaves_the_rest(database: Database) -> None:
    started, may_end, log = asyncio.Event(), asyncio.Event(), Log()

    async def handle(event: Event) -> None:
        started.set()
        await may_end.wait()
        await log(event)

    await add(database, "key", 1, 2)
    async with running(relay_of(database, handle)) as stopping:
        await started.wait()
        stopping.set()
        await asyncio.sleep(0)  # the relay has heard
        may_end.set()
    assert log.payloads == [1]
    assert [row.event().payload for row in await database.read(outbox.pending_page)] == [2]


@on_sqlite
async def test_a_cancelled_relay_leaves_its_events_to_the_next(database: Database) -> None:
    started = asyncio.Event()

    async def hang(event: Event) -> None:
        started.set()
        await asyncio.Event().wait()

    await add(database, "key", 1)
    task = asyncio.create_task(relay_of(database, hang).run(asyncio.Event()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    log = Log()
    async with running(relay_of(database, log)):
        await log.has(1)


@on_sqlite
async def test_memory_is_bounded_without_losing_events(database: Database) -> None:
    """Far more events than fit, most of them of one key: all are handled, in order, and no key starves."""
    most, seen, log = 12, 0, Log()
    await add(database, "hot", *range(60))
    for n in range(20):
        await add(database, f"cold {n}", n)

    async def handle(event: Event) -> None:
        nonlocal seen
        seen = max(seen, len(relay._backlog))  # pyright: ignore[reportPrivateUsage]
        await log(event)

    relay = relay_of(database, handle, most_in_memory=most, concurrency=3)
    async with running(relay):
        await log.has(80)
    assert seen <= most
    assert [event.payload for event in log.events if event.key == "hot"] == list(range(60))
    assert sorted(event.payload for event in log.events if event.key != "hot") == list(range(20))


@on_sqlite
async def test_order_is_kept_in_a_key_that_is_read_over_many_pages(database: Database) -> None:
    """Its share of the memory is full before a page ends, and has room again when the next one comes."""
    log = Log()
    await add(database, "one", *range(450))
    async with running(relay_of(database, log)):
        await log.has(450)
    assert log.payloads == list(range(450))


@pytest.mark.every_server
@on_sqlite
async def test_a_key_whose_retry_becomes_due_between_two_pages_stays_in_order(migrated_url: str) -> None:
    clock, log = ManualClock(), Log()
    async with await Database.open(migrated_url, clock=clock) as database:
        await add(database, "key", "first")
        (first,) = await database.read(outbox.pending_page)
        later = clock.now() + timedelta(minutes=1)
        await database.transaction(lambda tx: outbox.postpone(tx, first.id, seen=0, not_before=later, error="not yet"))
        await add(database, "others", *range(250))
        await add(database, "key", "second")
        read = database.read

        async def read_slowly(*args: Any) -> Any:
            page = await read(*args)
            clock.advance(timedelta(minutes=1))
            return page

        database.read = read_slowly  # pyright: ignore[reportAttributeAccessIssue]
        async with running(relay_of(database, log)):
            await log.has(252)
    assert [event.payload for event in log.events if event.key == "key"] == ["first", "second"]


@pytest.mark.full
@on_sqlite
async def test_a_hanging_key_does_not_fill_the_memory(database: Database) -> None:
    stuck, log = asyncio.Event(), Log()

    async def handle(event: Event) -> None:
        if event.key == "slow":
            await stuck.wait()
        await log(event)

    await add(database, "slow", *range(300))
    await add(database, "quick", "through")
    async with running(relay_of(database, handle, most_in_memory=8, concurrency=2)):
        await log.has(1)
        assert log.payloads == ["through"]
        stuck.set()
        await log.has(301)


@pytest.mark.every_server
@pytest.mark.parametrize("server_name", SERVERS)
async def test_a_lower_id_that_commits_after_a_higher_one_is_delivered(server_name: SqlName) -> None:
    from sqlalchemy.util import await_only

    async with migrated_on(server_name) as (server, name), await Database.open(server.url(name)) as database:
        log = Log()

        async def overtake() -> None:
            await add(database, "b", "higher")
            await log.has(1)

        def slow(tx: Transaction) -> None:
            outbox.add(tx, Event("kind", "a", "lower"))
            await_only(overtake())

        async with running(relay_of(database, log)):
            await database.transaction(slow)
            await log.has(2)
        assert log.payloads == ["higher", "lower"]


@pytest.mark.every_server
@pytest.mark.parametrize("server_name", SERVERS)
async def test_an_unavailable_database_is_waited_for(server_name: SqlName) -> None:
    async with (
        migrated_on(server_name) as (server, name),
        Proxy(server.port) as wire,
        await Database.open(server.url(name)) as direct,
        await Database.open(server.url(name, port=wire.port)) as database,
    ):
        log, cut = Log(), asyncio.Event()

        async def handle(event: Event) -> None:
            if not cut.is_set():
                cut.set()
                await wire.refuse()  # before the row can be removed
            await log(event)

        async with running(relay_of(database, handle)):
            await add(database, "key", 1)
            await log.has(1)
            await add(direct, "key", 2)  # its ring is not heard here: a fresh pass must find it
            await wire.listen()
            await log.has(2)
        assert log.payloads == [1, 2]
        assert (await direct.read(outbox.depth)).pending == 0


@pytest.mark.every_server
async def test_two_concurrent_relays_apply_each_effect_once(database: Database) -> None:
    """For the moment when a leader has lost its lease and does not know it yet."""
    effects = outbox_events.metadata.tables["handled_events"]
    done = [0, 0]

    def handler(number: int) -> Callable[[Event], Awaitable[None]]:
        async def handle(event: Event) -> None:
            first = await database.transaction(outbox.once, "counter", event.event_id)
            done[number] += first

        return handle

    for n in range(40):
        await add(database, f"key {n % 5}", n)
    async with running(relay_of(database, handler(0))), running(relay_of(database, handler(1))):
        await empty(database)
    assert sum(done) == 40
    assert await database.read(lambda tx: tx.execute(select(func.count()).select_from(effects)).scalar_one()) == 40


@on_sqlite
async def test_an_idle_relay_sends_no_statement(database: Database) -> None:
    log, asked = Log(), 0
    async with running(relay_of(database, log)):
        await add(database, "key", 1)
        await log.has(1)
        await empty(database)
        original = database._run  # pyright: ignore[reportPrivateUsage]

        async def counted(*args: Any, **options: Any) -> Any:
            nonlocal asked
            asked += 1
            return await original(*args, **options)

        database._run = counted  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        await observe_absence()
        assert asked <= 1  # a pass that was under way
        database._run = original  # pyright: ignore[reportPrivateUsage]


@on_sqlite
async def test_invalid_arguments_are_refused(database: Database) -> None:
    log = Log()
    for nonsense in ({"concurrency": 0}, {"max_attempts": 0}, {"most_in_memory": 0}, {"handler_timeout": timedelta(0)}):
        with pytest.raises(InvalidArgument):
            relay_of(database, log, **nonsense)
    with pytest.raises(InvalidArgument, match="two handlers"):
        Relay(database, [Handler("kind", "same", log), Handler("kind", "same", log)])
    with pytest.raises(InvalidArgument):
        Handler("", "name", log)
