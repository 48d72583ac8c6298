"""Identities: sealed in SQL, lent to workers, known to the gate, and shown without what is secret about them."""

import asyncio
import base64
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import text

from tests.servers.migrated import migrated_file
from tests.servers.ports import free_ports
from tests.servers.valkey import ValkeyServer, connected
from tests.systems.crawl.politeness.harness import SMALL, PolitenessHarness, harness_at
from tidegate import __version__
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument, NoCredential, NotFound, ValkeyUnavailable
from tidegate.engine.credentials.opening import rotate_key
from tidegate.engine.credentials.vault import CannotDecrypt, KeyFileMissing
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.crawl.health_records import IdentityHealth
from tidegate.systems.crawl.hosts import crawl_identity_health, rest
from tidegate.systems.crawl.identities import Identity
from tidegate.systems.crawl.identity_records import credential_of, has_identities, name_of
from tidegate.systems.crawl.politeness import PoliteRequest
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate_simulators.marketplace import MarketplaceConfig

AGENT, COOKIE = "Mozilla/5.0 (secret agent 0815)", "sid=s3cr3t-c00kie-value; theme=light"
SPY = {"User-Agent": AGENT, "Cookie": COOKIE, "Accept-Language": "xx-unseen"}


async def headers_of(harness: PolitenessHarness, name: str) -> Mapping[str, str]:
    return msgspec.json.decode(await harness.book.secret_of(credential_of(name)))


async def rows(harness: PolitenessHarness, table: str) -> list[tuple[object, ...]]:
    def ask(tx: Transaction) -> list[tuple[object, ...]]:
        return [tuple(row) for row in tx.execute(text(f"SELECT * FROM {table}"))]

    return await harness.database.read(ask)


async def test_without_configured_identities_requests_name_tidegate(harness: PolitenessHarness):
    assert await harness.book.list() == [Identity(name="tidegate", built_in=True, health=[])]
    assert await headers_of(harness, "tidegate") == {"User-Agent": f"tidegate/{__version__} (crawler)"}
    await harness.book.register()
    assert list(await harness.members()) == ["crawl:tidegate"]
    reached = harness.again(contact="https://example.org/bot")
    assert await headers_of(reached, "tidegate") == {
        "User-Agent": f"tidegate/{__version__} (crawler; +https://example.org/bot)"
    }
    assert await headers_of(harness.again(user_agent="me/1"), "tidegate") == {"User-Agent": "me/1"}


@pytest.mark.every_server
async def test_an_identity_is_added_and_removed(everywhere: PolitenessHarness):
    harness = everywhere
    await harness.book.register()

    added = await harness.book.add("spy", SPY)

    assert (added.name, added.enabled, added.built_in) == ("spy", True, False)
    assert list(await harness.members()) == ["crawl:spy"], "the built-in one serves only where none is stored"
    assert await headers_of(harness, "spy") == SPY
    with pytest.raises(NoCredential):
        await harness.book.secret_of("crawl:tidegate")

    await harness.book.disable("spy")
    assert list(await harness.members()) == []
    with pytest.raises(NoCredential):
        await harness.book.secret_of("crawl:spy")
    with pytest.raises(NoCredential, match="all identities are disabled"):
        await harness.book.pool_for("ada")

    await harness.book.enable("spy")
    assert list(await harness.members()) == ["crawl:spy"]
    assert await harness.book.pool_for("ada") == "crawl"
    replaced = await harness.book.add("spy", {"User-Agent": "another"})
    assert await headers_of(harness, "spy") == {"User-Agent": "another"}
    assert replaced.created_at == added.created_at

    await harness.book.remove("spy")
    assert list(await harness.members()) == ["crawl:tidegate"]
    for gone in (harness.book.remove, harness.book.enable, harness.book.disable, harness.book.get):
        with pytest.raises(NotFound):
            await gone("spy")


async def test_identities_are_used_as_the_settings_say(harness: PolitenessHarness):
    await harness.again(concurrency=3).book.register()
    (member,) = (await harness.members()).values()
    assert member.concurrency == 3
    await harness.book.register()
    (member,) = (await harness.members()).values()
    assert member.concurrency == 1


async def test_stored_shown_and_logged_data_contains_no_header_values(harness: PolitenessHarness, logged: StringIO):
    added = await harness.book.add("spy", SPY)
    await harness.book.hosts.register(harness.host)
    with pytest.raises(Exception, match="was read first") as raised:
        await harness.call(identity="spy")
    await harness.call(identity="spy")
    await harness.sim.stop()
    harness.advance(timedelta(days=2))
    with pytest.raises(Exception, match="cannot be read") as failed:
        await harness.call(identity="spy")
    with pytest.raises(InvalidArgument) as refused:
        await harness.book.add("other", SPY | {"Cookie": COOKIE + "\n"})
    told = [
        repr(one) for one in (added, harness.book, raised.value, failed.value, refused.value, await harness.stored())
    ]
    stored = [repr(await rows(harness, table)) for table in ("crawl_identities", "crawl_hosts")]
    keys = [key + await harness.parts.valkey.execute("DUMP", key) for key in await _keys(harness)]
    everything = "".join([*told, *stored, logged.getvalue()]).encode() + b"".join(keys)
    for secret in (AGENT, COOKIE, "xx-unseen"):
        for form in (secret.encode(), base64.b64encode(secret.encode())[:-4], secret.encode().hex().encode()):
            assert form not in everything
    assert '"identity":"spy"' in logged.getvalue().replace(" ", ""), "lines of every level are looked at"


async def _keys(harness: PolitenessHarness) -> list[bytes]:
    return await harness.parts.valkey.execute("KEYS", "*")


def test_the_repr_of_a_request_hides_its_identity():
    shown = repr(PoliteRequest(url="http://shop.test/a", purpose="crawl.test", headers=SPY))
    assert shown == "PoliteRequest(GET http://shop.test/a, crawl.test, 3 headers)"


async def test_headers_copied_to_another_name_cannot_be_decrypted(harness: PolitenessHarness):
    await harness.book.add("one", SPY)
    await harness.book.add("other", {"User-Agent": "other"})

    def swap(tx: Transaction) -> None:
        tx.execute(
            text("UPDATE crawl_identities SET headers = (SELECT headers FROM crawl_identities WHERE name='one')")
        )

    await harness.database.transaction(swap)
    with pytest.raises(CannotDecrypt, match="'other'"):
        await harness.again().book.secret_of("crawl:other")


async def test_a_lost_key_is_reported_when_only_identities_need_it(harness: PolitenessHarness, tmp_path: Path):
    assert not await harness.database.read(has_identities)
    await harness.book.add("spy", SPY)
    assert await harness.database.read(has_identities)
    (tmp_path / "credentials.key").unlink()
    with pytest.raises(KeyFileMissing):
        await harness.again().book.add("other", SPY)


@pytest.mark.every_server
async def test_rotating_the_key_reencrypts_identities(everywhere: PolitenessHarness):
    harness = everywhere
    await harness.book.add("spy", SPY)
    ((_, sealed, key_id, *_),) = await rows(harness, "crawl_identities")
    for _ in range(3):  # old keys go with the second rotation after them
        done = await rotate_key(harness.database, harness.vault, [harness.book])
        assert done.encrypted_anew == 1
    ((_, other, other_id, *_),) = await rows(harness, "crawl_identities")
    assert sealed != other
    assert key_id != other_id
    assert await headers_of(harness.again(), "spy") == SPY


@pytest.mark.every_server
async def test_registration_after_a_loss_of_data_restores_pace_and_blocks(everywhere: PolitenessHarness):
    harness = everywhere.again(delay=timedelta(seconds=4))
    await harness.book.add("spy", SPY)
    await harness.book.add("rested", {"User-Agent": "rested"})
    await harness.book.hosts.register(harness.host)
    await harness.database.transaction(_refused, harness.host)
    await harness.parts.valkey.execute("FLUSHALL")

    await harness.book.register()

    pace = await harness.pace()
    assert (pace.gap_ms, pace.rests_in_ms, pace.one_at_a_time) == (4_000, 90_000, True)
    members = await harness.members()
    assert sorted(members) == ["crawl:rested", "crawl:spy"]
    assert {name: [b.rests_in_ms for b in one.buckets] for name, one in members.items()}["crawl:spy"] == [600_000]
    assert members["crawl:spy"].blocked_in_ms == 0, "it may call other hosts"
    assert sum(bucket.rests_in_ms for bucket in members["crawl:rested"].buckets) == 0


async def test_registration_in_an_intact_gate_changes_nothing(harness: PolitenessHarness):
    await harness.book.hosts.register(harness.host)
    await harness.book.register()
    before = await harness.pace(), await harness.members()
    for _ in range(2):
        await harness.book.register()
    assert (await harness.pace(), await harness.members()) == before


@pytest.mark.every_server
async def test_concurrent_additions_of_the_same_identity_both_succeed(everywhere: PolitenessHarness):
    visits = [everywhere.again() for _ in range(4)]
    await asyncio.gather(*(one.book.add("spy", {"User-Agent": f"spy/{n}"}) for n, one in enumerate(visits)))
    assert [one.name for one in await everywhere.book.list()] == ["spy"]


async def test_identities_are_listed_while_valkey_is_unavailable(tmp_path: Path, clock: ManualClock):
    [port] = free_ports(1)
    async with AsyncExitStack() as stack:
        server = stack.enter_context(ValkeyServer(port=port))
        valkey = await stack.enter_async_context(connected(f"redis://127.0.0.1:{port}"))
        url = await migrated_file(tmp_path / "tidegate.db")
        database = await stack.enter_async_context(await Database.open(url, clock=clock))
        config = MarketplaceConfig(world=SMALL)
        harness = await stack.enter_async_context(harness_at(tmp_path, valkey, database, config))
        await harness.book.add("spy", SPY)
        await harness.database.transaction(_refused, harness.host)
        server.stop()
        with pytest.raises(ValkeyUnavailable):
            await harness.book.register()

        (listed,) = await harness.book.list()

        assert listed.name == "spy"
        (health,) = listed.health
        assert (health.host, health.score, health.refusals, health.last_reason) == (harness.host, 0.5, 1, "403")
        assert health.resting_until == clock.now() + timedelta(minutes=10)
        clock.advance(timedelta(minutes=15))
        ((health,),) = [one.health for one in await harness.book.list()]
        assert (health.score, health.resting_until) == (1.0, None)


def _refused(tx: Transaction, host: str) -> None:
    """As if the host had refused the spy, and asked everybody to wait."""
    health = IdentityHealth(updated_at=tx.now).refused(tx.now, timedelta(minutes=10), is_guess=False)
    values = msgspec.structs.asdict(health) | {"identity": "spy", "host": host, "last_reason": "403"}
    tx.insert_many(crawl_identity_health, [values])
    rest(tx, host, tx.now + timedelta(seconds=90), "busy")


async def test_an_invalid_or_taken_name_is_refused(harness: PolitenessHarness):
    for name in ("", "tidegate", "a b", "a|b", "x" * 81, "crawl:x"):
        with pytest.raises(InvalidArgument, match="name"):
            await harness.book.add(name, SPY)


async def test_headers_that_cannot_be_sent_are_refused_and_not_shown(harness: PolitenessHarness):
    wrong = [
        ({"Cookie": COOKIE}, "User-Agent is missing"),
        ({"User-Agent": " "}, "User-Agent is missing"),
        ({"User-Agent": AGENT, "Host": "x"}, "cannot be part of an identity"),
        ({"User-Agent": AGENT, "accept-encoding": "br"}, "cannot be part of an identity"),
        ({"User-Agent": AGENT, "user-agent": AGENT}, "twice"),
        ({"User-Agent": AGENT + "\r\nX: y"}, "one line"),
        ({"User-Agent": AGENT, "Bad Name": "x"}, "name of a header"),
        ({"User-Agent": AGENT, "X-Long": "x" * 20_000}, "at most"),
    ]
    for headers, why in wrong:
        with pytest.raises(InvalidArgument, match=why) as raised:
            await harness.book.add("spy", headers)
        assert AGENT not in str(raised.value)
        assert COOKIE not in str(raised.value)
    assert not await harness.database.read(has_identities)


def test_an_identity_unknown_to_the_gate_is_refused():
    assert name_of(credential_of("spy")) == "spy"
    with pytest.raises(InvalidArgument):
        name_of("token-1")


@pytest.mark.parametrize(
    "wrong",
    [
        {"delay": -1},
        {"user_agent": "two\nlines"},
        {"contact": ""},
        {"retry_after_binds": "nobody"},
        {"concurrency": 0},
        {"sites": ["no place"]},
        {"raw_attempts": 0},
        {"ignore_robots": True},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, object]):
    """Nothing in the settings switches robots.txt off: who wants that types it for each crawl."""
    with pytest.raises(ValueError):
        CrawlSettings.model_validate(wrong)
