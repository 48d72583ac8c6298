"""Guessing at a key where people log in: a few times, and then once in a while."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette

from tests.http.asgi import ask
from tests.http.serving import Reply
from tests.http.test_sessions import ADDRESS, OPERATE, READ, application, bearer, settings_of
from tidegate.http.attempts import Allowance, Attempts
from tidegate.http.remote import ClientAddresses
from tidegate.http.session_desk import SessionDesk
from tidegate.kernel.errors import InvalidArgument
from tidegate.settings.http import HttpSettings
from tidegate.telemetry import metrics

FEW, MANY = Allowance(burst=3, another_after_s=10), Allowance(burst=5, another_after_s=2)


class Timer:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


def shop(timer: Timer, proxies: int = 0) -> Starlette:
    made = settings_of(proxies=proxies)
    return application(made, SessionDesk(made, attempts=Attempts(FEW, MANY, now=timer)))


async def attempt(app: Starlette, key: str = "wrong", client: str = "192.0.2.1", forwarded: str | None = None) -> Reply:
    headers = {} if forwarded is None else {"x-forwarded-for": forwarded}
    return await ask(app, "POST", ADDRESS, headers, {"key": key}, client=client)


async def test_whoever_guesses_has_a_few_attempts_and_then_has_to_wait_also_with_the_right_key():
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


async def test_whoever_is_elsewhere_or_sends_his_key_is_not_concerned():
    app = shop(Timer())

    assert [(await attempt(app)).status for _ in range(4)][-1] == 429
    assert (await attempt(app, OPERATE, client="192.0.2.2")).status == 200
    assert (await ask(app, "GET", "/v1/thing", bearer(READ), client="192.0.2.1")).status == 200


async def test_a_right_key_does_not_give_attempts_back():
    app = shop(Timer())

    told = [(await attempt(app, key)).status for key in ("wrong", READ, "wrong", READ, "wrong", READ)]

    assert told == [401, 200, 401, 200, 401, 429]


async def test_whoever_has_many_addresses_meets_the_limit_over_all():
    timer = Timer()
    app = shop(timer)

    told = [(await attempt(app, client=f"198.51.100.{n}")).status for n in range(6)]
    assert told == [401] * 5 + [429]
    assert (await attempt(app, OPERATE, client="203.0.113.7")).headers["retry-after"] == "2"
    timer.s += 2
    assert (await attempt(app, OPERATE, client="203.0.113.7")).status == 200


async def test_what_somebody_says_about_his_address_counts_only_behind_proxies_of_ours():
    unbelieved, behind_one = shop(Timer()), shop(Timer(), proxies=1)

    told = [(await attempt(unbelieved, forwarded=f"198.51.100.{n}")).status for n in range(4)]
    assert told == [401, 401, 401, 429]
    # He may write what he likes before what our proxy saw.
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
def test_the_address_that_counts(client: str | None, forwarded: str | None, proxies: int, address: str):
    headers = [] if forwarded is None else [(b"x-forwarded-for", forwarded.encode())]
    scope = {"type": "http", "headers": headers, "client": None if client is None else (client, 4711)}

    assert ClientAddresses(HttpSettings(proxies=proxies)).of_scope(scope) == address


def test_a_public_proxy_is_believed_where_its_network_is_listed():
    settings = HttpSettings.model_validate({"proxies": 1, "proxy_networks": ["203.0.113.0/24"]})

    assert ClientAddresses(settings).of("203.0.113.5", "198.51.100.1") == "198.51.100.1"
    assert ClientAddresses(settings).of("10.0.0.1", "198.51.100.1") == "10.0.0.1"


async def test_attempts_are_counted_by_outcome():
    def counts() -> list[float]:
        labels = ("good", "wrong", "blocked")
        return [metrics.HTTP_LOGINS.labels(each)._value.get() for each in labels]  # pyright: ignore[reportPrivateUsage]

    app, before = shop(Timer()), counts()
    for key in (OPERATE, "wrong", "wrong", "wrong", OPERATE):
        await attempt(app, key)

    assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 3, 1]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 40)), max_size=60))
def test_nobody_has_more_attempts_than_his_allowance(tries: list[tuple[str, float]]):
    """Those of any span of time are at most the burst and what the span gives back."""
    timer, made = Timer(), dict[str, list[float]]()
    attempts = Attempts(FEW, Allowance(burst=1000, another_after_s=0.001), now=timer)
    for who, pause_s in tries:
        timer.s += pause_s
        wait_s = attempts.wait_s(who)
        if wait_s is None:
            attempts.failed(who)
            made.setdefault(who, []).append(timer.s)
        else:
            assert 1 <= wait_s <= FEW.another_after_s
    for times in made.values():
        for first, begin in enumerate(times):
            for last, end in enumerate(times[first:], first):
                assert last - first + 1 <= FEW.burst + math.floor((end - begin) / FEW.another_after_s + 1e-6)


def test_what_is_kept_of_addresses_is_bounded_and_forgotten():
    timer = Timer()
    attempts = Attempts(FEW, Allowance(burst=10_000, another_after_s=0.001), most_addresses=50, now=timer)
    for n in range(200):
        attempts.failed(str(n))
    assert len(attempts) == 50
    timer.s += FEW.another_after_s
    attempts.failed("another")
    assert len(attempts) == 1


@pytest.mark.parametrize(("burst", "another_after_s"), [(0, 1), (1, 0), (-1, 1), (1, math.nan)])
def test_an_allowance_must_be_one(burst: int, another_after_s: float):
    with pytest.raises(InvalidArgument):
        Allowance(burst, another_after_s)
