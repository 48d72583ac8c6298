"""Guessing at a key where people log in: a few times, and then once in a while."""

import asyncio
import math
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.asgi import ask
from tests.http.serving import Reply
from tests.http.test_sessions import ADDRESS, OPERATE, READ, application, bearer, settings_of
from tests.servers.valkey import ValkeyServer, connected
from tidegate.core.errors import InvalidArgument
from tidegate.core.telemetry import metrics
from tidegate.http.access import Access, AttemptLimit, Attempts
from tidegate.http.asgi import Application, ClientAddresses
from tidegate.http.settings import HttpSettings
from tidegate.storage.valkey import Valkey

FEW, MANY = AttemptLimit(burst=3, another_after_s=10), AttemptLimit(burst=5, another_after_s=2)


class Timer:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


def shop(timer: Timer, proxies: int = 0, valkey: Valkey | None = None) -> Application:
    made = settings_of(proxies=proxies)
    of_address, of_logins = Attempts(FEW, now=timer), Attempts(MANY, now=timer)
    return application(made, Access(made, valkey=valkey, of_address=of_address, of_logins=of_logins))


_guesses = count()


async def attempt(
    app: Application, key: str | None = None, client: str = "192.0.2.1", forwarded: str | None = None
) -> Reply:
    """Log in with a key, or with one more guess."""
    headers = {} if forwarded is None else {"x-forwarded-for": forwarded}
    return await ask(app, "POST", ADDRESS, headers, {"key": key or f"wrong-{next(_guesses)}"}, client=client)


async def send(app: Application, key: str | None = None, client: str = "192.0.2.1", path: str = "/v1/thing") -> Reply:
    """Send a key, or one more guess, with a request."""
    return await ask(app, "GET", path, bearer(key or f"wrong-{next(_guesses)}"), client=client)


async def test_after_a_few_wrong_keys_even_the_right_key_has_to_wait():
    timer = Timer()
    app = shop(timer)

    assert [(await attempt(app)).status for _ in range(4)] == [401, 401, 401, 429]
    blocked = await attempt(app, OPERATE)
    assert (blocked.status, blocked.problem, blocked.headers["retry-after"]) == (429, "too-many-attempts", "10")
    assert "set-cookie" not in blocked.headers
    timer.s += 9.5
    assert (await attempt(app, OPERATE)).headers["retry-after"] == "1"
    timer.s += 0.5
    assert (await attempt(app, OPERATE)).status == 200


async def test_wrong_keys_of_requests_and_logins_use_the_same_allowance():
    timer = Timer()
    app = shop(timer)

    assert [(await send(app)).status for _ in range(2)] == [401, 401]
    assert (await attempt(app)).status == 401
    blocked = [await send(app), await send(app, OPERATE), await attempt(app, OPERATE)]
    assert [(each.status, each.problem) for each in blocked] == [(429, "too-many-attempts")] * 3
    assert blocked[0].headers["retry-after"] == "10"
    # Where everybody may look, nobody learns whether the key is right.
    assert (await send(app, OPERATE, path="/healthz")).status == (await send(app, path="/healthz")).status
    assert (await send(app, OPERATE, path=ADDRESS)).status == 401
    assert (await send(app, OPERATE, client="192.0.2.2")).status == 200
    timer.s += 10
    assert (await send(app, OPERATE)).status == 200
    assert [(await send(app)).status for _ in range(2)] == [401, 429]
    assert (await send(app, OPERATE)).status == 200, "a key that was good here before is no guess"
    assert (await send(app, READ)).status == 429


async def test_repeating_the_same_wrong_key_counts_once():
    app = shop(Timer())

    assert {(await send(app, "an-old-key-of-a-client")).status for _ in range(20)} == {401}
    assert (await send(app, OPERATE)).status == 200


async def test_concurrent_guesses_get_no_more_answers_than_sequential_ones(embedded: Valkey):
    app = shop(Timer(), valkey=embedded)
    await send(app)

    replies = await asyncio.gather(*(send(app) for _ in range(20)), send(app, OPERATE))

    assert sorted(each.status for each in replies) == [401] * 2 + [429] * 19


async def test_processes_share_the_allowance_and_apply_it_locally_without_valkey(embedded: Valkey):
    first, second = shop(Timer(), valkey=embedded), shop(Timer(), valkey=embedded)

    assert [(await send(first)).status for _ in range(4)] == [401, 401, 401, 429]
    assert (await send(second)).status == 429
    assert (await send(second, OPERATE)).status == 429
    assert (await send(second, OPERATE, client="192.0.2.2")).status == 200

    with ValkeyServer() as server:
        async with connected(server.url) as valkey:
            server.stop()
            third = shop(Timer(), valkey=valkey)
            assert [(await send(third)).status for _ in range(4)] == [401, 401, 401, 429]
            assert (await send(third, OPERATE, client="192.0.2.2")).status == 200


async def test_a_right_key_does_not_restore_attempts():
    app = shop(Timer())

    told = [(await attempt(app, key)).status for key in (None, READ, None, READ, None, READ, OPERATE)]

    assert told == [401, 200, 401, 200, 401, 200, 429]


async def test_guesses_from_many_addresses_meet_the_global_limit():
    timer = Timer()
    app = shop(timer)

    told = [(await attempt(app, client=f"198.51.100.{n}")).status for n in range(6)]
    assert told == [401] * 5 + [429]
    assert (await attempt(app, OPERATE, client="203.0.113.7")).headers["retry-after"] == "2"
    timer.s += 2
    assert (await attempt(app, OPERATE, client="203.0.113.7")).status == 200


async def test_a_forwarded_address_is_used_only_behind_trusted_proxies():
    unbelieved, behind_one = shop(Timer()), shop(Timer(), proxies=1)

    told = [(await attempt(unbelieved, forwarded=f"198.51.100.{n}")).status for n in range(4)]
    assert told == [401, 401, 401, 429]
    # The client may write anything before the address that the proxy appends.
    told = [
        (await attempt(behind_one, client="10.0.0.1", forwarded=f"203.0.113.{n}, 198.51.100.1")).status
        for n in range(4)
    ]
    assert told == [401, 401, 401, 429]
    assert (await attempt(behind_one, OPERATE, client="10.0.0.1", forwarded="198.51.100.2")).status == 200
    # A client that connects past the proxy is known by its own address.
    told = [(await attempt(behind_one, client="192.0.2.1", forwarded=f"203.0.113.{n}")).status for n in range(4)]
    assert told == [401, 401, 429, 429]


@pytest.mark.parametrize(
    ("client", "forwarded", "proxies", "address"),
    [
        ("192.0.2.1", None, 0, "192.0.2.1"),
        ("10.0.0.1", "198.51.100.1", 0, "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1", 1, "198.51.100.1"),
        ("10.0.0.1", "198.51.100.1:4711", 1, "198.51.100.1"),
        ("10.0.0.1", "203.0.113.1, 198.51.100.1", 1, "198.51.100.1"),
        ("10.0.0.1", "203.0.113.1, 198.51.100.1 ,10.0.0.9", 2, "198.51.100.1"),
        ("10.0.0.1", "198.51.100.1", 2, "198.51.100.1"),
        ("10.0.0.1", "203.0.113.1, 198.51.100.1", 2, "198.51.100.1"),  # not by the outer proxy
        ("10.0.0.1", None, 1, "10.0.0.1"),
        ("10.0.0.1", "unknown", 1, "10.0.0.1"),
        ("10.0.0.1", "203.0.113.1, unknown", 2, "10.0.0.1"),
        ("192.0.2.1", "198.51.100.1", 1, "192.0.2.1"),  # not by a proxy at all
        ("::ffff:192.0.2.1", None, 0, "192.0.2.1"),
        ("::ffff:10.0.0.1", "198.51.100.1", 1, "198.51.100.1"),
        ("2001:db8:1:2:3:4:5:6", None, 0, "2001:db8:1:2::/64"),
        ("10.0.0.1", "[2001:db8:1:2::9]:4711", 1, "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "10.0.0.7", 1, "10.0.0.7"),
        ("::1", None, 0, "::1"),
        ("testclient", None, 0, "unknown"),
        (None, None, 0, "unknown"),
        (None, "198.51.100.1", 1, "198.51.100.1"),  # over a Unix socket
    ],
)
def test_the_client_address_is_determined(client: str | None, forwarded: str | None, proxies: int, address: str):
    headers = [] if forwarded is None else [(b"x-forwarded-for", forwarded.encode())]
    scope = {"type": "http", "headers": headers, "client": None if client is None else (client, 4711)}

    assert ClientAddresses(HttpSettings(proxies=proxies)).of_scope(scope) == address


def test_a_public_proxy_is_trusted_when_its_network_is_listed():
    settings = HttpSettings.model_validate({"proxies": 1, "proxy_networks": ["203.0.113.0/24"]})

    assert ClientAddresses(settings).of("203.0.113.5", "198.51.100.1") == "198.51.100.1"
    assert ClientAddresses(settings).of("10.0.0.1", "198.51.100.1") == "10.0.0.1"


async def test_attempts_are_counted_by_outcome():
    def counts() -> list[float]:
        labels = ("good", "wrong", "blocked")
        return [metrics.HTTP_LOGINS.labels(each)._value.get() for each in labels]  # pyright: ignore[reportPrivateUsage]

    app, before = shop(Timer()), counts()
    for key in (READ, None, None, None, OPERATE):
        await attempt(app, key)

    assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 3, 1]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 40)), max_size=60))
def test_attempts_never_exceed_the_allowance(tries: list[tuple[str, float]]):
    """Those of any span of time are at most the burst and what the span gives back."""
    timer, made = Timer(), dict[str, list[float]]()
    attempts = Attempts(FEW, now=timer)
    for who, pause_s in tries:
        timer.s += pause_s
        wait_s = attempts.take(who)
        if wait_s is None:
            made.setdefault(who, []).append(timer.s)
        else:
            assert 0 < wait_s <= FEW.another_after_s
    for times in made.values():
        for first, begin in enumerate(times):
            for last, end in enumerate(times[first:], first):
                assert last - first + 1 <= FEW.burst + math.floor((end - begin) / FEW.another_after_s + 1e-6)


def test_memory_for_addresses_is_bounded_and_expires():
    timer = Timer()
    attempts = Attempts(FEW, most_subjects=50, now=timer)
    for n in range(200):
        attempts.take(str(n))
    assert len(attempts) == 50
    timer.s += FEW.another_after_s
    attempts.take("another")
    assert len(attempts) == 1


@pytest.mark.parametrize(("burst", "another_after_s"), [(0, 1), (1, 0), (-1, 1), (1, math.nan)])
def test_an_invalid_allowance_is_refused(burst: int, another_after_s: float):
    with pytest.raises(InvalidArgument):
        AttemptLimit(burst, another_after_s)
