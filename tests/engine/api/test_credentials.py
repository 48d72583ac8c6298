"""Credentials and quotas over HTTP: secrets go in, and never come out."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tests.engine.credentials.harness import app_key
from tests.http.serving import Reply, Served, served
from tests.http.test_problems import log_lines
from tidegate.engine.api.credentials import App, CredentialRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")

APP, INSTALLATION = 71, 5


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    """Without any credential at first."""
    async with served(tmp_path_factory.mktemp("bare"), users=4, has_token=False) as started:
        yield started


async def add(bare: Served, **body: Any) -> Reply:
    return await bare.client.post("/v1/credentials", body)


async def names(bare: Served) -> list[str]:
    return [each["name"] for each in (await bare.client.get("/v1/credentials")).json["credentials"]]


async def test_a_token_is_stored_shown_without_its_secret_used_and_removed(bare: Served):
    operator = bare.sim.world.operators()[0]
    token = bare.sim.token_of(operator)

    with log_lines() as lines:
        added = await add(bare, token=token, owner="the platform team")
        shown = await bare.client.get(added.headers["location"])
        listed = await bare.client.get("/v1/credentials")
        tested = await bare.client.post(f"/v1/credentials/{operator}/test")
        run = await bare.collect(bare.logins[0], include=["USER_BASIC"])
        quotas = await bare.client.get("/v1/quotas")
        removed = await bare.client.ask("DELETE", f"/v1/credentials/{operator}")

    assert (added.status, run["status"], removed.status) == (201, "completed", 200)
    assert (added.json["name"], added.json["owner"]) == (operator, "the platform team")
    assert (
        shown.json
        == added.json
        == removed.json | {"checked_at": added.json["checked_at"]} | {"details": added.json["details"]}
    )
    assert [each["name"] for each in listed.json["credentials"]] == [operator]
    assert (tested.json["is_valid"], tested.json["account"]) == (True, operator)
    [pool] = quotas.json["pools"]
    assert [each["credentials"] for each in pool["allowances"]] == [[operator]]
    everything = b"".join(each.body for each in (added, shown, listed, tested, quotas, removed))
    assert token.encode() not in everything
    assert token not in json.dumps(lines)
    assert (await bare.client.get(f"/v1/credentials/{operator}")).problem == "not-found"
    assert await names(bare) == []


async def test_a_token_of_a_user_is_used_for_that_user_only(bare: Served):
    login, other = bare.logins[1:3]
    token = bare.sim.token_of(login)

    added = await add(bare, token=token, user=f"@{login.upper()}", name="of/this user")

    assert (added.status, added.json["user_id"]) == (201, login)
    assert added.headers["location"] == "/v1/credentials/of%2Fthis%20user"
    assert (await bare.client.get(added.headers["location"])).json == added.json, "a name may contain a slash"
    assert (await bare.collect(login, include=["USER_BASIC"]))["status"] == "completed"
    assert (await bare.client.post("/v1/runs", {"login": other})).problem == "no-credential"
    pools = [pool["pool"] for pool in (await bare.client.get("/v1/quotas")).json["pools"]]
    assert len(pools) == 2
    first = (await bare.client.get("/v1/quotas?limit=1")).json
    second = (await bare.client.get(first["next"])).json
    assert [first["pools"][0]["pool"], second["pools"][0]["pool"], second["next"]] == [*pools, None]
    assert [each["pool"] for each in (await bare.client.get(f"/v1/quotas?pool={pools[1]}")).json["pools"]] == [pools[1]]
    assert (await bare.client.ask("DELETE", added.headers["location"])).status == 200


async def test_the_key_of_an_app_is_stored_and_never_shown(bare: Served):
    key, public = app_key()
    bare.sim.credentials.register_app(APP, public, {INSTALLATION: (10, 10)})

    app = {"app_id": APP, "installation_id": INSTALLATION, "private_key": key}
    added = await add(bare, app=app, owner="the platform team")

    assert (added.status, added.json["kind"]) == (201, "installation")
    assert b"PRIVATE" not in added.body
    path = added.headers["location"]
    assert (await bare.client.post(f"{path}/test")).json["is_valid"] is True
    assert (await bare.client.ask("DELETE", path)).status == 200


async def test_a_token_that_github_refuses_is_not_stored(bare: Served):
    wrong = "ghp_" + "wrong" * 8

    refused = await add(bare, token=wrong)

    assert (refused.status, refused.problem) == (422, "secret-refused")
    assert wrong.encode() not in refused.body
    assert await names(bare) == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "token"),
        ({"token": "x", "app": {"app_id": 1, "installation_id": 1, "private_key": "x"}}, "token"),
        ({"token": ""}, "token"),
        ({"token": "two words"}, "token"),
        ({"token": "x", "secret": "y"}, "secret"),
        ({"token": "x", "check": False}, "owner"),
        ({"app": {"app_id": 1, "installation_id": 1, "private_key": "x"}}, "owner"),
        ({"app": {"app_id": 0, "installation_id": 1, "private_key": "x"}}, "app.app_id"),
        ({"app": {"app_id": 1, "installation_id": 1, "private_key": "hunter2"}, "owner": "me"}, "private key"),
        ({"token": "x", "owner": ""}, "owner"),
        ({"token": "x", "name": "a|b", "owner": "me", "check": False}, "name"),
        ({"token": "x" * 5_000}, "token"),
        ({"token": "x", "user": "octo cat"}, "user"),
    ],
    ids=range(13),
)
async def test_an_invalid_credential_is_refused_by_name_without_showing_its_secret(
    body: dict[str, Any], field: str, bare: Served
):
    refused = await add(bare, **body)

    assert (refused.status, refused.problem, refused.json["field"]) == (422, "invalid", field)
    assert b"hunter2" not in refused.body
    assert await names(bare) == []


async def test_a_name_that_belongs_to_another_account_is_refused(bare: Served):
    first, second = [bare.sim.token_of(login) for login in bare.logins[:2]]
    await add(bare, token=first, name="shared")

    taken = await add(bare, token=second, name="shared")
    elsewhere = await add(bare, token=first, name="other", user=bare.logins[3])

    assert (taken.status, taken.problem) == (409, "conflict")
    assert (elsewhere.status, elsewhere.problem) == (409, "conflict")
    assert (await bare.client.ask("DELETE", "/v1/credentials/shared")).status == 200


async def test_the_repr_of_request_structs_hides_secrets():
    app = App(app_id=1, installation_id=2, private_key="hunter2")
    assert "hunter2" not in f"{app!r} {CredentialRequest(token='hunter2')!r} {CredentialRequest(app=app)!r}"
