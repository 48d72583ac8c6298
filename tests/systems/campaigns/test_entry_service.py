"""The door: who gets in, under which number, and what the others are told."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.servers.migrated import migrated_file
from tests.servers.valkey import empty_valkey
from tests.systems.campaigns.harness import CAMPAIGN, CampaignHarness, harness_at
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.core.ids import new_id
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.entry_service import _enter  # pyright: ignore[reportPrivateUsage]
from tidegate.systems.campaigns.model import POINTS, CampaignChange, EntryAnswer, EntryReceipt
from tidegate.systems.campaigns.service import Campaigns


@pytest.fixture
async def harness(tmp_path: Path, embedded: Valkey, clock: ManualClock) -> AsyncGenerator[CampaignHarness]:
    async with harness_at(await migrated_file(tmp_path / "shop.db"), embedded, clock) as opened:
        yield opened


def accepted(number: int) -> EntryReceipt:
    return EntryReceipt(EntryAnswer.ACCEPTED, number)


def duplicate(number: int) -> EntryReceipt:
    return EntryReceipt(EntryAnswer.DUPLICATE, number)


@pytest.mark.every_server
async def test_entries_are_numbered_and_queued_in_order_of_arrival(valkey: Valkey, tmp_path: Path):
    """On each kind of server."""
    async with harness_at(await migrated_file(tmp_path / "shop.db"), valkey) as harness:
        await harness.open()

        answers = [
            await harness.campaigns.enter(CAMPAIGN, user, data={"n": user}) for user in ("ann", "bob", "zoë | {x}")
        ]

        assert answers == [accepted(1), accepted(2), accepted(3)]
        line = await harness.line()
        assert [(entry.user, entry.number, entry.data) for entry in line] == [
            ("ann", 1, {"n": "ann"}),
            ("bob", 2, {"n": "bob"}),
            ("zoë | {x}", 3, {"n": "zoë | {x}"}),
        ]


async def test_two_unicode_forms_of_a_user_are_one_user(harness: CampaignHarness):
    await harness.open()
    assert await harness.campaigns.enter(CAMPAIGN, " \uff21da\u00a0") == accepted(1)

    assert await harness.campaigns.enter(CAMPAIGN, "Ada") == duplicate(1)
    assert (await harness.campaigns.result(CAMPAIGN, "Ada ")).number == 1
    for user in ("", "  ", "a\u200bda", "a\nda", "a\u202eda", "x" * 129, "\ufdfa" * 10):
        with pytest.raises(InvalidArgument):
            await harness.campaigns.enter(CAMPAIGN, user)
    assert [entry.user for entry in await harness.line()] == ["Ada"]


async def test_the_same_key_gets_the_same_answer_and_another_key_is_a_duplicate(harness: CampaignHarness):
    await harness.open()
    assert await harness.campaigns.enter(CAMPAIGN, "ann", "first") == accepted(1)

    assert await harness.campaigns.enter(CAMPAIGN, "ann", "first") == accepted(1)
    assert await harness.campaigns.enter(CAMPAIGN, "ann", "second") == duplicate(1)
    assert await harness.campaigns.enter(CAMPAIGN, "ann") == duplicate(1)
    assert await harness.campaigns.enter(CAMPAIGN, "bob", "first") == accepted(2), "a key belongs to its user"
    assert len(await harness.line()) == 2


async def test_a_second_entry_without_a_key_is_a_duplicate(harness: CampaignHarness):
    await harness.open()
    assert await harness.campaigns.enter(CAMPAIGN, "ann") == accepted(1)
    assert await harness.campaigns.enter(CAMPAIGN, "ann") == duplicate(1)


async def test_a_call_with_a_lost_reply_can_be_repeated(harness: CampaignHarness):
    """As the connection does by itself when it breaks: nobody knows then whether the script ran."""
    await harness.open(total=3)
    call: dict[str, Any] = {
        "campaign": CAMPAIGN,
        "attempts": [("ann", "k1", '"user":"ann"}'), ("bob", "k2", '"user":"bob"}')],
        "max_len": 100,
        "forget_ms": 1000,
        "now_ms": None,
        **harness.keys(),
    }
    first = await _enter(harness.valkey, **call)

    assert await _enter(harness.valkey, **call) == first
    assert len(await harness.line()) == 2


async def test_a_campaign_starts_and_ends_at_its_times(harness: CampaignHarness, clock: ManualClock):
    now = clock.now()
    await harness.open(starts_at=now + timedelta(seconds=10), ends_at=now + timedelta(seconds=20))

    assert await harness.campaigns.enter(CAMPAIGN, "ann") == EntryReceipt(EntryAnswer.NOT_OPEN, None, 10_000)
    clock.advance(timedelta(seconds=10))
    assert await harness.campaigns.enter(CAMPAIGN, "ann", "k") == accepted(1)
    clock.advance(timedelta(seconds=10))
    assert await harness.campaigns.enter(CAMPAIGN, "bob") == EntryReceipt(EntryAnswer.NOT_OPEN)
    assert await harness.campaigns.enter(CAMPAIGN, "ann", "k") == accepted(1), "who is in is in"


async def test_a_campaign_that_is_not_started_or_was_stopped_accepts_no_entry(harness: CampaignHarness):
    await harness.open()
    await harness.campaigns.stop(CAMPAIGN)
    await harness.campaigns.stop(CAMPAIGN)

    assert await harness.campaigns.enter(CAMPAIGN, "ann") == EntryReceipt(EntryAnswer.NOT_OPEN)
    await harness.campaigns.start(CAMPAIGN)
    assert await harness.campaigns.enter(CAMPAIGN, "ann") == accepted(1)


async def test_a_stock_of_two_accepts_two_entries_and_more_when_it_grows(harness: CampaignHarness):
    await harness.open(total=2)
    answers = [await harness.campaigns.enter(CAMPAIGN, user) for user in ("a", "b", "c", "a")]
    assert answers == [accepted(1), accepted(2), EntryReceipt(EntryAnswer.SOLD_OUT), duplicate(1)]

    await harness.campaigns.alter(CAMPAIGN, CampaignChange(stock=3))

    assert await harness.campaigns.enter(CAMPAIGN, "c") == accepted(3)
    assert (await harness.campaigns.enter(CAMPAIGN, "d")).answer is EntryAnswer.SOLD_OUT


async def test_a_dead_letter_keeps_its_place_until_it_is_discarded(harness: CampaignHarness):
    await harness.open(total=1)
    await harness.campaigns.enter(CAMPAIGN, "ann")
    await bury_all(harness)
    assert (await harness.campaigns.enter(CAMPAIGN, "bob")).answer is EntryAnswer.SOLD_OUT
    assert (await harness.campaigns.result(CAMPAIGN, "ann")).state == "failed"
    [letter] = (await harness.campaigns.dead(CAMPAIGN)).letters
    assert letter.entry is not None
    assert letter.entry.user == "ann"

    assert await harness.campaigns.discard(CAMPAIGN, [letter.id]) == 1
    assert await harness.campaigns.discard(CAMPAIGN, [letter.id]) == 0

    assert (await harness.campaigns.result(CAMPAIGN, "ann")).state == "unknown"
    assert await harness.campaigns.enter(CAMPAIGN, "ann") == accepted(2), "and its user may enter again"


async def test_a_replayed_dead_letter_is_queued_again_under_its_number(harness: CampaignHarness):
    await harness.open(total=1)
    await harness.campaigns.enter(CAMPAIGN, "ann")
    await bury_all(harness)
    [letter] = (await harness.campaigns.dead(CAMPAIGN)).letters

    assert await harness.campaigns.replay(CAMPAIGN, [letter.id]) == 1
    assert await harness.campaigns.replay(CAMPAIGN, [letter.id]) == 0

    assert [(entry.user, entry.number) for entry in await harness.line()] == [("ann", 1)]
    result = await harness.campaigns.result(CAMPAIGN, "ann")
    assert (result.state, result.number) == ("pending", 1)
    assert (await harness.campaigns.enter(CAMPAIGN, "bob")).answer is EntryAnswer.SOLD_OUT


async def test_a_full_queue_answers_busy_and_drops_no_entry(tmp_path: Path, embedded: Valkey):
    async with harness_at(await migrated_file(tmp_path / "shop.db"), embedded, max_len=2) as harness:
        await harness.open()
        answers = [(await harness.campaigns.enter(CAMPAIGN, user)).answer for user in ("a", "b", "c", "a")]

        assert answers == [EntryAnswer.ACCEPTED, EntryAnswer.ACCEPTED, EntryAnswer.BUSY, EntryAnswer.DUPLICATE]
        assert len(await harness.line()) == 2


async def test_a_campaign_without_a_stock_accepts_all_users(harness: CampaignHarness):
    await harness.open(kind=POINTS, points=5, total=1)
    assert [(await harness.campaigns.enter(CAMPAIGN, user)).answer for user in "abc"] == [EntryAnswer.ACCEPTED] * 3


async def test_only_the_first_entry_sends_a_wake_up(harness: CampaignHarness):
    await harness.open()
    await harness.open("winter")
    for user in ("ann", "bob"):
        await harness.campaigns.enter(CAMPAIGN, user)
    await harness.campaigns.enter("winter", "ann")
    await harness.campaigns.enter(CAMPAIGN, "ann")

    assert await harness.wakeups() == [b"winter", CAMPAIGN.encode()]

    await harness.valkey.execute("DEL", harness.keys()["wakeups"], harness.keys()["woken"])
    await harness.valkey.execute("SADD", harness.keys()["processes"], "somebody")
    await harness.campaigns.enter(CAMPAIGN, "zoe")
    assert await harness.wakeups() == [], "whoever has hands calls for none"


async def test_an_unknown_campaign_is_not_found(harness: CampaignHarness):
    with pytest.raises(NotFound):
        await harness.campaigns.enter("nothing", "ann")
    with pytest.raises(NotFound):
        await harness.campaigns.result("nothing", "ann")


async def test_after_a_loss_of_data_the_campaign_is_restored_and_numbers_continue(harness: CampaignHarness):
    """Entries that only the server had are gone; those that are decided are not."""
    await harness.open()
    await harness.campaigns.enter(CAMPAIGN, "ann")
    await harness.valkey.execute("FLUSHALL")

    assert (await harness.campaigns.enter(CAMPAIGN, "bob")).answer is EntryAnswer.ACCEPTED
    line = await harness.line()
    assert [(entry.user, entry.number) for entry in line] == [("bob", 1)]
    assert line[0].epoch > 1, "the same number of another epoch"


async def test_concurrent_entry_services_accept_as_many_as_there_is_stock(harness: CampaignHarness):
    await harness.open(total=25)
    services = [Campaigns(harness.valkey, harness.database) for _ in range(4)]
    users = [f"user {n % 60}" for n in range(240)]

    answers = await asyncio.gather(*(services[n % 4].enter(CAMPAIGN, user) for n, user in enumerate(users)))

    numbers = [each.number for each in answers if each.answer is EntryAnswer.ACCEPTED]
    assert sorted(number for number in numbers if number is not None) == list(range(1, 26))
    line = await harness.line()
    assert [entry.number for entry in line] == list(range(1, 26))
    assert len({entry.user for entry in line}) == 25
    assert {each.answer for each in answers} == {EntryAnswer.ACCEPTED, EntryAnswer.DUPLICATE, EntryAnswer.SOLD_OUT}


async def test_concurrent_entries_share_one_request(harness: CampaignHarness):
    await harness.open(total=1000)
    await harness.campaigns.enter(CAMPAIGN, "first")
    before = await scripts_run(harness.valkey)

    await asyncio.gather(*(harness.campaigns.enter(CAMPAIGN, f"user {n}") for n in range(500)))

    assert await scripts_run(harness.valkey) - before <= 3


async def test_a_cancelled_entry_does_not_cancel_others(harness: CampaignHarness):
    await harness.open()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(harness.campaigns.enter(CAMPAIGN, user)) for user in ("ann", "bob", "zoe")]
        await asyncio.sleep(0)
        tasks[0].cancel()

    assert [task.cancelled() for task in tasks] == [True, False, False]
    assert [(task.result()).answer for task in tasks[1:]] == [EntryAnswer.ACCEPTED] * 2


@pytest.mark.parametrize(
    "attempt",
    [
        {"user": ""},
        {"user": "x" * 129},
        {"user": "a\nb"},
        {"user": "a", "key": ""},
        {"user": "a", "key": "k" * 129},
        {"user": "a", "data": {"x": "y" * 4096}},
        {"user": "a", "data": object()},
        {"user": "\ud800"},
    ],
)
async def test_invalid_arguments_are_refused(harness: CampaignHarness, attempt: dict[str, Any]):
    with pytest.raises(InvalidArgument):
        await harness.campaigns.enter(CAMPAIGN, **attempt)


async def bury_all(harness: CampaignHarness) -> None:
    """As a consumer pool does with what it cannot decide."""
    keys = harness.keys()
    for entry_id, fields in await harness.valkey.execute("XRANGE", keys["stream"], "-", "+"):
        added = ("dead.message", entry_id, "dead.deliveries", 5, "dead.reason", "it failed", "dead.at_ms", 1)
        await harness.valkey.execute("XADD", keys["dead"], "*", "payload", fields[b"payload"], *added)
        await harness.valkey.execute("XDEL", keys["stream"], entry_id)


async def scripts_run(valkey: Valkey) -> int:
    info = await valkey.execute("INFO", "commandstats")
    text = info.decode() if isinstance(info, bytes) else msgspec.json.encode(info).decode()
    _, _, rest = text.partition("cmdstat_evalsha")
    return int("".join(sign if sign.isdigit() else " " for sign in rest.partition("calls")[2][:20]).split()[0])


users, keys = st.sampled_from("abcdef"), st.sampled_from(["k1", "k2", None])


@settings(max_examples=examples(40))
@given(attempts=st.lists(st.tuples(users, keys), max_size=20), stock=st.integers(0, 5), together=st.booleans())
def test_answers_equal_those_of_a_sequential_model(
    embedded_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    attempts: list[tuple[str, str | None]],
    stock: int,
    together: bool,
):
    """However attempts are joined: the first so many distinct users get in, and each is told the same for ever."""
    asyncio.run(_compare(embedded_url, tmp_path_factory.mktemp("entry") / "shop.db", attempts, stock, together))


async def _compare(url: str, file: Path, attempts: list[tuple[str, str | None]], stock: int, together: bool) -> None:
    async with empty_valkey(url) as valkey, harness_at(await migrated_file(file), valkey) as harness:
        campaign = new_id()
        await harness.open(campaign, total=10, stock=stock)
        asked = [harness.campaigns.enter(campaign, user, key) for user, key in attempts]
        answers = await asyncio.gather(*asked) if together else [await each for each in asked]

        inside: dict[str, tuple[int, str | None]] = {}
        for (user, key), answer in zip(attempts, answers, strict=True):
            if user in inside:
                number, first = inside[user]
                assert answer == (accepted if key is not None and key == first else duplicate)(number)
            elif len(inside) < stock:
                inside[user] = len(inside) + 1, key
                assert answer == accepted(len(inside))
            else:
                assert answer == EntryReceipt(EntryAnswer.SOLD_OUT)
        assert [entry.user for entry in await harness.line(campaign)] == list(inside)
