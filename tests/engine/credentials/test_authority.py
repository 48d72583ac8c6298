"""What GitHub is asked about credentials, and what its answers mean."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import jwt
import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from tests.engine.credentials.harness import APP, INSTALLATION, app_key
from tidegate.core.clock import ManualClock
from tidegate.engine.credentials import Installation, SecretRefused, SecretUncheckable
from tidegate.engine.upstream import Answer, Request, UpstreamClient
from tidegate.systems.github.authority import GithubAuthority, sign
from tidegate_simulators.github import FaultKind, GithubSimulator, LimitSettings, SimulatorConfig, WorldShape

HERE = Installation(app_id=APP, installation_id=INSTALLATION)


def simulated(**limits: object) -> GithubSimulator:
    world = WorldShape(users=1, quirks=False)
    return GithubSimulator(SimulatorConfig(world=world, limits=LimitSettings(**limits)))  # pyright: ignore[reportArgumentType]


def at(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"{}") -> GithubAuthority:
    """A GitHub that answers everything in one way."""

    class Always:
        async def fetch(self, request: Request) -> Answer:
            return Answer(
                status=status,
                headers=CIMultiDictProxy(
                    CIMultiDict({name.replace("_", "-"): text for name, text in (headers or {}).items()})
                ),
                url=request.url,
                received_at=datetime.now(UTC),
                body=body,
                elapsed_ms=0.0,
            )

    return GithubAuthority(Always(), "https://api.github.com")


async def test_an_account_is_identified_by_number_and_host():
    async with simulated() as sim, UpstreamClient() as client:
        login = sim.world.operators()[0]
        found = [
            (await GithubAuthority(client, sim.url).check(sim.token_of(login, n), identify=True)).account
            for n in (0, 1)
        ]

        assert found[0] is not None
        assert found[0] == found[1]
        assert found[0].login == login
        assert found[0].allowance == f"user-{sim.world.require_account(login).id}@{sim.url.removeprefix('http://')}"


async def test_a_check_costs_one_call_if_the_name_is_unknown_and_none_otherwise():
    async with simulated() as sim, UpstreamClient() as client:
        authority, token = GithubAuthority(client, sim.url), sim.token_of(sim.world.operators()[0])
        assert (await authority.check(token, identify=False)).left["core"].remaining == 5_000
        assert sim.report().spent.get("core", 0) == 0

        await authority.check(token, identify=True)

        assert sim.report().spent["core"] == 1


async def test_an_exhausted_window_is_not_overdrawn_to_find_a_name():
    async with simulated(quota=1) as sim, UpstreamClient() as client:
        authority, token = GithubAuthority(client, sim.url), sim.token_of(sim.world.operators()[0])
        await authority.check(token, identify=True)

        checked = await authority.check(token, identify=True)

        assert (checked.account, checked.left["core"].remaining) == (None, 0)
        assert sim.report().broken == 0


async def test_an_app_token_expires_when_github_says():
    private, public = app_key()
    async with simulated(installation_token_s=77) as sim, UpstreamClient() as client:
        sim.credentials.register_app(APP, public, {INSTALLATION: (1, 1)})

        issued = await GithubAuthority(client, sim.url).issue(HERE, private)

        assert 75 <= issued.lasts_s <= 77
        assert (await GithubAuthority(client, sim.url).check(issued.token, identify=False)).left


@pytest.mark.parametrize("wrong_by", [timedelta(hours=-3), timedelta(hours=3), timedelta(minutes=5)])
async def test_an_app_is_accepted_although_the_local_clock_is_wrong(wrong_by: timedelta):
    private, public = app_key()
    ours = ManualClock(datetime.now(UTC) + wrong_by)

    class WrongClock:
        """A client on a machine whose clock is wrong."""

        async def fetch(self, request: Request) -> Answer:
            answer = await client.fetch(request)
            return Answer(
                status=answer.status,
                headers=answer.headers,
                url=answer.url,
                received_at=answer.received_at + wrong_by,
                body=answer.body,
                elapsed_ms=0.0,
            )

    async with simulated() as sim, UpstreamClient() as client:
        sim.credentials.register_app(APP, public, {INSTALLATION: (1, 1)})

        issued = await GithubAuthority(WrongClock(), sim.url, ours).issue(HERE, private)

        assert 3_590 <= issued.lasts_s <= 3_600, "the span is GitHub's, whatever our clock says"
        assert sim.report().calls <= 2


def test_a_signed_token_expires_within_the_limit_of_github():
    private, public = app_key()
    now = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)

    claims = jwt.decode(sign(APP, private, now=now), public, algorithms=["RS256"], options={"verify_exp": False})

    assert claims["iss"] == str(APP)
    assert claims["iat"] == now.timestamp() - 60
    assert claims["exp"] - claims["iat"] <= 600


async def test_errors_on_the_way_to_github_contain_no_secret():
    async with simulated() as sim, UpstreamClient() as client:
        authority, token = GithubAuthority(client, sim.url), sim.token_of(sim.world.operators()[0])
        for kind in (FaultKind.SERVER_ERROR, FaultKind.INVALID, FaultKind.SECONDARY):
            sim.faults.inject(kind)
            with pytest.raises(SecretUncheckable):
                await authority.check(token, identify=True)
            sim.faults.clear()


@pytest.mark.parametrize(
    ("status", "headers", "meant"),
    [
        (401, {}, SecretRefused),
        (403, {}, SecretRefused),
        (403, {"retry_after": "60"}, SecretUncheckable),
        (429, {}, SecretUncheckable),
        (403, {"x_ratelimit_remaining": "0"}, SecretUncheckable),
        (500, {}, SecretUncheckable),
        (404, {}, SecretRefused),
        (304, {}, SecretUncheckable),
    ],
)
async def test_every_response_to_an_app_is_mapped_to_a_result(
    status: int, headers: dict[str, str], meant: type[Exception]
):
    private, _ = app_key()

    with pytest.raises(meant):
        await at(status, headers).issue(HERE, private)


async def test_a_github_without_rate_limits_is_supported():
    class Unlimited:
        async def fetch(self, request: Request) -> Answer:
            is_free = request.url.endswith("/rate_limit")
            return Answer(
                status=404 if is_free else 200,
                headers=CIMultiDictProxy(
                    CIMultiDict({"github-authentication-token-expiration": "2027-01-02 03:04:05 UTC"})
                ),
                url=request.url,
                received_at=datetime.now(UTC),
                body=b'{"id": 1, "login": "ghost"}',
                elapsed_ms=0.0,
            )

    checked = await GithubAuthority(Unlimited(), "https://github.example/api/v3").check("x", identify=True)

    assert checked.account is not None
    assert checked.account.allowance == "user-1@github.example"
    assert checked.expires_at == datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert checked.scopes is None


async def test_two_hosts_with_long_names_have_different_ids():
    hosts = [f"https://{'x' * 70}{n}.example" for n in range(2)]
    names = {GithubAuthority(UpstreamClient(), host).account_of(HERE).allowance for host in hosts}

    assert len(names) == 2
    assert all(len(name) <= 100 for name in names)


@pytest.mark.parametrize(("reset", "year"), [(10**18, 9999), (-(10**18), 1970)])
async def test_a_reset_at_an_impossible_time_is_no_error(reset: int, year: int):
    body = b'{"resources": {"core": {"limit": 5, "remaining": 4, "reset": %d}}}' % reset
    checked = await at(200, body=body).check("token", identify=False)
    assert checked.left["core"].resets_at.year == year
