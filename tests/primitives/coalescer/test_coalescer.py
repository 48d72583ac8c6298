"""One works, the others are told; versions only ever grow."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer, leftover_keys
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument
from tidegate.core.priority import Priority
from tidegate.core.telemetry.metrics import REGISTRY
from tidegate.primitives.coalescer import (
    AlreadyProcessing,
    Coalescer,
    CoalescerKeys,
    CoalescerSettings,
    Draft,
    Published,
    Upgraded,
)
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected

HIGH, LOW = Priority.HIGH, Priority.LOW
SECOND = timedelta(seconds=1)


@pytest.fixture
def coalescer(valkey: Valkey, clock: ManualClock) -> Coalescer:
    return Coalescer(valkey, clock=clock)


async def published(coalescer: Coalescer, subject: str, priority: Priority = LOW, known_version: int = 0) -> int:
    outcome = await coalescer.request(subject, priority, known_version=known_version)
    assert isinstance(outcome, Published)
    return outcome.version


async def forget(valkey: Valkey, subject: str) -> None:
    """What happens by itself after 45 minutes."""
    work = CoalescerKeys(valkey.unit("coalescer"), subject).work
    assert await valkey.execute("PEXPIREAT", work, 1) == 1


async def test_the_first_request_publishes_and_the_others_get_its_version(coalescer: Coalescer):
    version = await published(coalescer, "ada", HIGH)
    for priority in (HIGH, LOW, HIGH):
        assert await coalescer.request("ada", priority) == AlreadyProcessing(version)


async def test_a_batch_gives_the_results_of_single_requests(coalescer: Coalescer):
    low = await published(coalescer, "low", LOW)
    high = await published(coalescer, "high", HIGH)

    wanted = [("new", LOW, 0), ("low", HIGH, 0), ("high", LOW, 0), ("new", LOW, 0), ("known", HIGH, 10**15 * 4)]
    new, upgraded, known_high, again, known = await coalescer.request_many(wanted)

    assert isinstance(new, Published)
    assert isinstance(upgraded, Upgraded)
    assert upgraded.version > low
    assert known_high == AlreadyProcessing(high)
    assert again == AlreadyProcessing(new.version)
    assert isinstance(known, Published)
    assert known.version == 10**15 * 4 + 1
    assert new.token != known.token
    assert await coalescer.request_many([]) == []


async def test_an_invalid_request_in_a_batch_refuses_the_whole_batch(coalescer: Coalescer):
    for wrong in (("", LOW, 0), ("b", LOW, -1), ("b", LOW, 2**53)):
        with pytest.raises(InvalidArgument):
            await coalescer.request_many([("a", LOW, 0), wrong])
    assert await coalescer.current_version("a") is None


async def test_subjects_are_independent(coalescer: Coalescer):
    versions = [await published(coalescer, f"subject {n}") for n in range(50)]
    assert await coalescer.current_versions(f"subject {n}" for n in range(50)) == versions


def draft(subject: str, priority: Priority = HIGH, known_version: int = 0) -> Draft:
    return Draft(subject, priority, known_version, ["key", subject, "value"], f'{{"subject":"{subject}","version":')


async def test_only_granted_requests_are_added_to_the_stream_in_the_same_step(coalescer: Coalescer, valkey: Valkey):
    stream = valkey.unit("coalescer").key("stream")
    low = await published(coalescer, "low", LOW)
    high = await published(coalescer, "high", HIGH)
    many = [draft(f"s{n}") for n in range(250)]

    outcomes = await coalescer.publish_many(stream, [draft("low"), draft("high"), *many, draft("s0")])
    messages = [fields for _, fields in await valkey.execute("XRANGE", stream, "-", "+")]

    upgraded, known, *new, again = outcomes
    assert isinstance(upgraded, Upgraded)
    assert known == AlreadyProcessing(high)
    assert {type(each) for each in new} == {Published}
    assert again == AlreadyProcessing(new[0].version)
    granted = {"low": upgraded.version} | {f"s{n}": each.version for n, each in enumerate(new)}
    assert {fields[b"key"].decode(): json.loads(fields[b"value"]) for fields in messages} == {
        subject: {"subject": subject, "version": version} for subject, version in granted.items()
    }
    assert len(messages) == len(granted)
    assert await coalescer.are_obsolete([("low", low), *granted.items()]) == [True] + [False] * len(granted)
    assert await coalescer.publish_many(stream, []) == []


async def test_a_lost_reply_adds_no_second_event(coalescer: Coalescer, valkey: Valkey, monkeypatch: pytest.MonkeyPatch):
    """The client sends the same command again when the connection broke."""
    stream, execute = valkey.unit("coalescer").key("stream"), valkey.pipeline

    async def twice(commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        first = await execute(commands)
        assert await execute(commands) == first
        return first

    await coalescer.publish_many(stream, [draft("warm")])  # the server knows the script from now on
    monkeypatch.setattr(valkey, "pipeline", twice)
    [outcome] = await coalescer.publish_many(stream, [draft("ada")])

    assert isinstance(outcome, Published)
    assert await valkey.execute("XLEN", stream) == 2


async def test_a_high_request_takes_over_a_low_lock_with_a_higher_version(coalescer: Coalescer):
    """Served at once; the LOW event, when it comes up, is skipped."""
    low = await published(coalescer, "ada", LOW)

    upgraded = await coalescer.request("ada", HIGH)

    assert isinstance(upgraded, Upgraded)
    assert upgraded.version > low
    assert await coalescer.confirm("ada", upgraded.version)
    assert await coalescer.is_obsolete("ada", low)
    assert not await coalescer.is_obsolete("ada", upgraded.version)
    for priority in (HIGH, LOW):
        assert await coalescer.request("ada", priority) == AlreadyProcessing(upgraded.version)


async def test_only_confirmed_work_makes_older_work_obsolete(coalescer: Coalescer):
    """A requester that cannot publish, or dies before it does, does not affect the requester with the queued event."""
    low = await published(coalescer, "ada", LOW)
    await coalescer.confirm("ada", low)
    failed = (await coalescer.request("ada", HIGH)).version
    assert not await coalescer.is_obsolete("ada", low), "a version was given, and nothing published yet"
    await coalescer.release("ada", failed)
    assert not await coalescer.is_obsolete("ada", low)
    again = await published(coalescer, "ada", HIGH)
    assert await coalescer.confirm_many([("ada", again), ("ada", again), ("ada", low)]) == [True, False, False]
    assert await coalescer.are_obsolete([("ada", low), ("ada", failed), ("ada", again)]) == [True, True, False]


async def test_a_confirmation_unknown_to_the_server_has_no_effect(coalescer: Coalescer, valkey: Valkey):
    """It would stay for ever, or make obsolete what is asked for after the data were lost."""
    version = await published(coalescer, "ada")
    await forget(valkey, "ada")
    assert not await coalescer.confirm("ada", version)
    assert await coalescer.current_version("ada") is None
    after = await published(coalescer, "ada")
    assert not await coalescer.confirm("ada", after + 1)
    assert not await coalescer.is_obsolete("ada", after)


async def test_a_replaced_holder_cannot_release_the_lock_of_its_successor(coalescer: Coalescer):
    low = await published(coalescer, "ada", LOW)
    high = (await coalescer.request("ada", HIGH)).version
    assert not await coalescer.release("ada", low)
    assert await coalescer.request("ada", HIGH) == AlreadyProcessing(high)
    assert await coalescer.release("ada", high)


@pytest.mark.parametrize(("priority", "lasts"), [(HIGH, 30 * SECOND), (LOW, 60 * SECOND)])
async def test_an_unreleased_lock_expires(
    coalescer: Coalescer, clock: ManualClock, priority: Priority, lasts: timedelta
):
    first = await published(coalescer, "ada", priority)
    clock.advance(lasts - timedelta(milliseconds=1))
    assert await coalescer.request("ada", LOW) == AlreadyProcessing(first)
    clock.advance(timedelta(milliseconds=1))
    assert await published(coalescer, "ada", LOW) > first


async def test_an_upgraded_lock_lasts_as_long_as_a_high_one(coalescer: Coalescer, clock: ManualClock):
    await coalescer.request("ada", LOW)
    await coalescer.request("ada", HIGH)
    clock.advance(30 * SECOND)
    assert isinstance(await coalescer.request("ada", HIGH), Published)


async def test_a_release_frees_the_subject_immediately_and_counts_once(coalescer: Coalescer):
    version = await published(coalescer, "ada")
    assert [await coalescer.release("ada", version) for _ in range(3)] == [True, False, False]
    assert await coalescer.current_version("ada") == version, "the version outlives its lock"
    assert await published(coalescer, "ada") > version


async def test_a_release_of_another_or_unknown_version_has_no_effect(coalescer: Coalescer):
    version = await published(coalescer, "ada")
    assert not await coalescer.release("ada", version + 1)
    assert not await coalescer.release("ada", version - 1)
    assert not await coalescer.release("nobody", version)
    assert await coalescer.request("ada", LOW) == AlreadyProcessing(version)


async def test_a_late_holder_cannot_release_the_lock_of_a_new_holder(coalescer: Coalescer, clock: ManualClock):
    late = await published(coalescer, "ada")
    clock.advance(60 * SECOND)
    version = await published(coalescer, "ada")
    assert not await coalescer.release("ada", late)
    assert await coalescer.request("ada", LOW) == AlreadyProcessing(version)


async def test_repeating_a_request_after_a_lost_reply_gives_the_same_answer(coalescer: Coalescer):
    """A broken connection hides whether a script ran; nobody would publish if the repetition were told to wait."""
    first = await coalescer.request("ada", LOW, token="a")
    assert await coalescer.request("ada", LOW, token="a") == first
    overtaking = await coalescer.request("ada", HIGH, token="b")
    assert isinstance(overtaking, Upgraded)
    assert await coalescer.request("ada", HIGH, token="b") == overtaking
    assert await coalescer.request("ada", LOW, token="a") == AlreadyProcessing(overtaking.version)


async def test_a_request_whose_reply_was_lost_is_still_published():
    [port] = free_ports(1)
    with ValkeyServer(port=port):
        async with Proxy(port) as wire, connected(f"redis://127.0.0.1:{wire.port}") as valkey:
            coalescer = Coalescer(valkey)
            await published(coalescer, "bob")  # the server has learnt the script
            wire.cut_after(b"EVALSHA")
            assert isinstance(await coalescer.request("ada", HIGH), Published)


async def test_versions_increase_after_they_expired(coalescer: Coalescer, valkey: Valkey, clock: ManualClock):
    first = await published(coalescer, "ada")
    await forget(valkey, "ada")
    assert await coalescer.current_version("ada") is None
    clock.advance(-timedelta(days=365))
    assert await published(coalescer, "ada") > first


async def test_versions_increase_when_the_clock_is_set_back(coalescer: Coalescer, clock: ManualClock):
    versions: list[int] = []
    for _ in range(5):
        versions.append(await published(coalescer, "ada"))
        await coalescer.release("ada", versions[-1])
        clock.advance(-timedelta(hours=1))
    assert versions == sorted(set(versions))


async def test_a_clock_that_is_set_back_does_not_prolong_a_lock(coalescer: Coalescer, clock: ManualClock):
    version = await published(coalescer, "ada", HIGH)
    clock.advance(-timedelta(hours=1))
    assert await coalescer.request("ada", HIGH) == AlreadyProcessing(version)
    clock.advance(30 * SECOND)
    assert isinstance(await coalescer.request("ada", HIGH), Published)


async def test_versions_are_at_least_the_time_in_microseconds(coalescer: Coalescer, clock: ManualClock):
    """So they grow even over a loss of all data, as long as no clock is set back."""
    assert await published(coalescer, "ada") == clock.pinned_ms * 1000


async def test_versions_increase_after_a_loss_of_all_data_if_the_caller_passes_the_last_one(
    coalescer: Coalescer, valkey: Valkey, clock: ManualClock
):
    last = await published(coalescer, "ada")
    await valkey.execute("FLUSHALL")
    clock.advance(-timedelta(days=1))
    assert await published(coalescer, "ada", known_version=last) == last + 1


async def test_a_restored_lock_older_than_the_last_known_version_is_ignored(coalescer: Coalescer):
    old = await published(coalescer, "ada")
    assert await published(coalescer, "ada", known_version=old + 10) == old + 11
    assert await coalescer.request("ada", LOW, known_version=old + 11) == AlreadyProcessing(old + 11)


async def test_versions_are_exact_up_to_the_highest_allowed_one(coalescer: Coalescer):
    """Numbers in Lua are doubles, and its default format keeps 14 digits."""
    version = await published(coalescer, "ada", known_version=2**52)
    assert version == 2**52 + 1
    assert await coalescer.current_version("ada") == version
    assert not await coalescer.confirm("ada", version + 1)
    assert await coalescer.confirm("ada", version)
    assert await coalescer.are_obsolete([("ada", version - 1), ("ada", version)]) == [True, False]
    assert not await coalescer.release("ada", version + 1)
    assert await coalescer.release("ada", version)
    assert await published(coalescer, "ada") == version + 1


async def test_without_a_known_version_nothing_is_obsolete(coalescer: Coalescer):
    assert not await coalescer.is_obsolete("nobody", 1)
    assert await coalescer.current_version("nobody") is None


async def test_thousands_of_events_are_checked_in_order(coalescer: Coalescer):
    versions = {f"s{n}": await published(coalescer, f"s{n}") for n in range(20)}
    await coalescer.confirm_many([*versions.items()])
    events = [(f"s{n % 25}", versions.get(f"s{n % 25}", 7) - n % 2) for n in range(2500)]
    expected = [n % 25 < 20 and n % 2 == 1 for n in range(2500)]
    assert await coalescer.are_obsolete(events) == expected
    assert await coalescer.are_obsolete([]) == []


async def test_only_the_version_key_does_not_expire(coalescer: Coalescer, valkey: Valkey):
    await coalescer.release("ada", await published(coalescer, "ada"))
    await coalescer.confirm("bob", await published(coalescer, "bob"))
    left = await leftover_keys(valkey, valkey.unit("coalescer"))
    assert left.keys() == {"mark", "work:ada", "work:bob"}
    assert left.pop("mark") is None
    assert all(life and 44 * 60_000 < life <= 45 * 60_000 for life in left.values())


async def test_coalescers_of_different_names_share_no_state(valkey: Valkey, clock: ManualClock):
    version = await published(Coalescer(valkey, clock=clock, name="players"), "ada")
    assert await published(Coalescer(valkey, clock=clock, name="matches"), "ada") == version


async def test_saved_requests_are_counted(coalescer: Coalescer):
    def counted() -> list[float]:
        names = ("dedup_coalesce_hit_total", "dedup_upgrade_total", "dedup_lock_conflict_total")
        return [REGISTRY.get_sample_value(name) or 0 for name in names]

    before = counted()
    low = await published(coalescer, "ada", LOW)
    await coalescer.request("ada", LOW)
    await coalescer.request("ada", LOW)
    await coalescer.request("ada", HIGH)
    await coalescer.release("ada", low)
    assert [after - first for after, first in zip(counted(), before, strict=True)] == [2, 1, 1]


@pytest.mark.parametrize("subject", ["", "a|b", "{a}", "a\n", "x" * 513])
async def test_a_subject_that_is_invalid_in_a_key_is_refused(embedded: Valkey, subject: str):
    coalescer = Coalescer(embedded)
    with pytest.raises(InvalidArgument, match="subject"):
        await coalescer.request(subject, HIGH)
    with pytest.raises(InvalidArgument, match="subject"):
        await coalescer.release(subject, 1)
    with pytest.raises(InvalidArgument, match="subject"):
        await coalescer.current_versions(["fine", subject])


async def test_invalid_arguments_are_refused(embedded: Valkey):
    coalescer = Coalescer(embedded)
    with pytest.raises(InvalidArgument, match="known_version"):
        await coalescer.request("ada", HIGH, known_version=-1)
    with pytest.raises(InvalidArgument, match="known_version"):
        await coalescer.request("ada", HIGH, known_version=2**52 + 1)
    with pytest.raises(InvalidArgument, match="token"):
        await coalescer.request("ada", HIGH, token="")
    with pytest.raises(InvalidArgument, match="priority"):
        await coalescer.request("ada", "urgent")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument, match="version"):
        await coalescer.release("ada", 0)
    with pytest.raises(InvalidArgument, match="version"):
        await coalescer.confirm("ada", 0)
    with pytest.raises(InvalidArgument, match="version"):
        await coalescer.is_obsolete("ada", -1)
    with pytest.raises(InvalidArgument, match="name"):
        Coalescer(embedded, name="")


@pytest.mark.parametrize(
    "wrong",
    [
        {"high_lock": timedelta(0)},
        {"low_lock": timedelta(seconds=-1)},
        {"keep_version": timedelta(seconds=59)},
        {"lock": 1},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, object]):
    with pytest.raises(ValidationError):
        CoalescerSettings.model_validate(wrong)
