"""Tokens, and apps that get them."""

from datetime import timedelta
from typing import Any

import pytest

from tests.simulators.github.client import Client, Got, simulated
from tests.simulators.github.rsa_keys import PrivateKey, new_key
from tidegate_simulators.errors import InvalidArgument, NotFound
from tidegate_simulators.github import LimitSettings
from tidegate_simulators.github.signatures import PublicKey

APP, INSTALLATION = 71, 5


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return new_key()


def claims(client: Client, *, lasts_s: int = 540, **more: Any) -> dict[str, Any]:
    now = int(client.clock.now().timestamp())
    return {"iat": now - 30, "exp": now + lasts_s, "iss": str(APP)} | more


async def issue(client: Client, signed: str, installation: int = INSTALLATION) -> Got:
    return await client.ask("POST", f"/app/installations/{installation}/access_tokens", token=signed)


async def test_a_token_has_an_owner():
    async with simulated() as client:
        got = await client.get("/user")

        assert (got.status, got.json["login"]) == (200, client.login)
        assert got.headers["x-oauth-scopes"]
        assert (await client.get("/user", token="")).status == 401


async def test_a_bad_token_is_refused_with_the_allowance_of_the_address():
    async with simulated() as client:
        got = await client.get(f"/users/{client.login}", token="ghp_nonsense")

        assert (got.status, got.json["message"]) == (401, "Bad credentials")
        assert got.headers["x-ratelimit-limit"] == "60"
        assert (await client.ask("GET", "/user", headers={"Authorization": "Basic x"})).status == 401


async def test_repeated_bad_tokens_block_the_address():
    async with simulated(limits=LimitSettings(bad_credentials_per_minute=3)) as client:
        statuses = [(await client.get("/user", token="ghp_nonsense")).status for _ in range(4)]

        assert statuses == [401, 401, 401, 403]
        assert client.sim.report().violations == {"too_many_bad_credentials": 1}


async def test_a_revoked_token_is_invalid():
    async with simulated() as client:
        assert client.token is not None
        client.sim.credentials.revoke(client.token)

        assert (await client.get("/user")).status == 401
        assert client.sim.token_of(client.login) == client.token
        assert (await client.get("/user")).status == 401, "and it stays so"


async def test_a_revoked_token_can_be_restored():
    async with simulated() as client:
        assert client.token is not None
        client.sim.credentials.revoke(client.token)
        client.sim.credentials.reinstate(client.token)

        assert (await client.get("/user")).status == 200
        with pytest.raises(NotFound):
            client.sim.credentials.reinstate("ghp_nonsense")


async def test_an_uninstalled_app_gets_no_token_and_its_tokens_are_invalid(key: PrivateKey):
    async with simulated() as client:
        client.sim.credentials.register_app(APP, key.pem, {INSTALLATION: (1, 1), 6: (1, 1)})
        token = (await issue(client, key.sign(claims(client)))).json["token"]
        other = (await issue(client, key.sign(claims(client)), 6)).json["token"]

        client.sim.credentials.uninstall(APP, INSTALLATION)

        assert (await issue(client, key.sign(claims(client)))).status == 404
        assert (await client.get(f"/users/{client.login}", token=token)).status == 401
        assert (await client.get(f"/users/{client.login}", token=other)).status == 200
        with pytest.raises(NotFound):
            client.sim.credentials.uninstall(APP, INSTALLATION)


async def test_an_app_gets_a_token_that_expires(key: PrivateKey):
    async with simulated(limits=LimitSettings(quota=100)) as client:
        client.sim.credentials.register_app(APP, key.pem, {INSTALLATION: (25, 20)})
        got = await issue(client, key.sign(claims(client)))
        assert got.status == 201
        assert got.json["expires_at"] == "2026-01-01T01:00:00Z"
        token = got.json["token"]

        used = await client.get(f"/users/{client.login}", token=token)
        assert (used.status, used.headers["x-ratelimit-limit"]) == (200, "105")
        assert (await client.get("/user", token=token)).status == 403
        second = (await issue(client, key.sign(claims(client)))).json["token"]
        assert second != token
        shared = await client.get(f"/users/{client.login}", token=second)
        assert shared.remaining == used.remaining - 2, "an installation's tokens share its allowance"
        assert shared.headers["etag"] != used.headers["etag"]

        client.clock.advance(timedelta(seconds=3_600))
        assert (await client.get(f"/users/{client.login}", token=token)).status == 401


async def test_only_a_valid_and_current_signature_authenticates_an_app(key: PrivateKey):
    async with simulated() as client:
        client.sim.credentials.register_app(APP, key.pkcs1, {INSTALLATION: (1, 1)})
        unknown_caller = new_key()
        good = claims(client)

        for signed in (
            unknown_caller.sign(good),
            key.sign(good, algorithm="none"),
            key.sign(good | {"iss": "72"}),
            key.sign(claims(client, lasts_s=3_600)),
            key.sign(claims(client, lasts_s=-1)),
            key.sign(good | {"iat": good["exp"]}),
            key.sign(good | {"iat": good["iat"] + 31}),
            key.sign({name: value for name, value in good.items() if name != "iat"}),
            key.sign(claims(client, lasts_s=601)),
            key.sign(good)[:-8] + "AAAAAAAA",
            "not.even.signed",
        ):
            assert (await issue(client, signed)).status == 401
        assert (await issue(client, client.sim.token_of(client.login))).status == 401
        assert (await issue(client, key.sign(good), installation=6)).status == 404
        assert (await client.get("/app", token=key.sign(good))).json["id"] == APP


@pytest.mark.full
def test_invalid_keys_are_refused(key: PrivateKey):
    assert PublicKey.from_pem(key.pem) == PublicKey.from_pem(key.pkcs1) == PublicKey(key.modulus, 65_537)
    for nonsense in ("", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "hello"):
        with pytest.raises(InvalidArgument, match="must be an RSA public key"):
            PublicKey.from_pem(nonsense)
