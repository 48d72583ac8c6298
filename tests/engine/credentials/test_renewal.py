"""Tokens that end: one renewal at a time, in time, and never in a loop."""

import asyncio
from collections.abc import Callable

import pytest

from tests.waiting import patience
from tidegate.engine.credentials import secret_cache
from tidegate.engine.credentials.authority import IssuedToken, SecretRefused, SecretUncheckable
from tidegate.engine.credentials.secret_cache import RenewedToken


class Time:
    """The process's clock, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Issuer:
    """Issues tokens that last an hour, or fails as it is told; `hold` keeps callers waiting."""

    def __init__(self) -> None:
        self.issued = 0
        self.trouble: list[Exception] = []
        self.hold = asyncio.Event()
        self.hold.set()

    async def __call__(self) -> IssuedToken:
        self.issued += 1
        number = self.issued
        await self.hold.wait()
        if self.trouble:
            raise self.trouble.pop(0)
        return IssuedToken(token=f"ghs_{number}", lasts_s=3_600)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(secret_cache, "monotonic", time)
    return time


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


async def settled(until: Callable[[], bool]) -> None:
    async with patience():
        while not until():
            await asyncio.sleep(0)


async def test_concurrent_requests_share_one_token(time: Time, issuer: Issuer):
    token = RenewedToken("app", issuer)
    issuer.hold.clear()
    asking = [asyncio.create_task(token.get()) for _ in range(20)]
    await settled(lambda: issuer.issued == 1)
    issuer.hold.set()

    assert set(await asyncio.gather(*asking)) == {"ghs_1"}
    time.now += 1800
    assert await token.get() == "ghs_1"
    assert issuer.issued == 1


async def test_a_token_is_renewed_before_it_expires_while_the_old_one_is_used(time: Time, issuer: Issuer):
    token = RenewedToken("app", issuer)
    await token.get()
    issuer.hold.clear()

    time.now += 3_600 * 0.9
    assert {await token.get() for _ in range(5)} == {"ghs_1"}, "nobody waits for the new one"
    await settled(lambda: issuer.issued == 2)
    issuer.hold.set()
    await settled(lambda: token.renewing is None)

    assert await token.get() == "ghs_2"
    assert issuer.issued == 2


async def test_a_token_that_is_about_to_expire_is_not_used(time: Time, issuer: Issuer):
    token = RenewedToken("app", issuer)
    await token.get()

    time.now += 3_600 - 29

    assert await token.get() == "ghs_2"


async def test_processes_renew_at_different_times(time: Time):
    del time
    renewals: set[float] = set()
    for _ in range(20):
        token = RenewedToken("app", Issuer())
        await token.get()
        current = token._current  # pyright: ignore[reportPrivateUsage]
        assert current is not None
        renewals.add(current.renew_at)

    assert len(renewals) > 10
    assert all(1000 + 0.7 * 3_600 <= at <= 1000 + 0.9 * 3_600 for at in renewals)


async def test_a_failed_early_renewal_has_no_effect_and_is_repeated_later(time: Time, issuer: Issuer):
    token = RenewedToken("app", issuer)
    await token.get()
    issuer.trouble = [SecretUncheckable("502")]
    time.now += 3_600 * 0.9

    assert await token.get() == "ghs_1"
    await settled(lambda: token.renewing is None and issuer.issued == 2)
    time.now += 130  # longer than any pause after the first failure
    assert await token.get() == "ghs_1"
    await settled(lambda: token.renewing is None)

    assert await token.get() == "ghs_3"


async def test_while_no_token_is_available_the_issuer_is_asked_with_pauses(time: Time, issuer: Issuer):
    token = RenewedToken("app", issuer)
    issuer.trouble = [SecretUncheckable("502")] * 1000
    for _ in range(200):
        with pytest.raises(SecretUncheckable, match="502"):
            await token.get()
        time.now += 0.01

    assert issuer.issued < 50
    issuer.trouble = []
    time.now += 130
    assert (await token.get()).startswith("ghs_")


async def test_a_cancelled_waiter_does_not_cancel_the_renewal(time: Time, issuer: Issuer):
    del time
    token = RenewedToken("app", issuer)
    issuer.hold.clear()
    impatient, patient = asyncio.create_task(token.get()), asyncio.create_task(token.get())
    await settled(lambda: issuer.issued == 1)
    impatient.cancel()
    issuer.hold.set()

    assert await patient == "ghs_1"


async def test_a_refused_token_is_replaced_once_and_the_second_refusal_is_final(time: Time, issuer: Issuer):
    token = RenewedToken("app", issuer)
    first = await token.get()
    assert token.refuse(first), "somebody may have revoked it"
    assert token.refuse(first), "the calls that were under way with it say nothing new"

    second = await token.get()
    assert second != first
    assert not token.refuse(second), "a new one fares no better"

    time.now += 60
    assert token.refuse(second), "it was good for a while"


async def test_a_permanent_refusal_is_reported_as_such(time: Time, issuer: Issuer):
    del time
    issuer.trouble = [SecretRefused("404: Not Found")]

    with pytest.raises(SecretRefused, match="404"):
        await RenewedToken("app", issuer).get()


def test_no_repr_or_error_contains_a_token():
    issued = IssuedToken(token="ghs_hunter2", lasts_s=1)

    assert "hunter2" not in f"{issued!r} {issued}"
