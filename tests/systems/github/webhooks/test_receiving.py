"""The answers to deliveries: what is accepted, and what is refused with a reason and without an effect."""

import asyncio
import io
import sqlite3
import uuid
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from pydantic import SecretStr, ValidationError
from sqlalchemy import func, select

from tests.http.serving import Client, Reply
from tests.systems.github.deployment import SECRET
from tests.systems.github.webhooks.deployment import WebhookDeployment, webhook_deployment
from tidegate.storage.sql import Transaction
from tidegate.systems.github.webhooks import deliveries
from tidegate.systems.github.webhooks.deliveries import github_deliveries
from tidegate.systems.github.webhooks.settings import GithubWebhookSettings
from tidegate_simulators.github.webhooks import sign

REPOSITORY = {"id": 7, "full_name": "octocat/hello", "default_branch": "main", "owner": {"type": "User"}}
ISSUE = {"id": 1, "number": 1, "title": "one", "updated_at": "2026-01-02T00:00:00Z", "user": None}
OPENED = {"action": "opened", "repository": REPOSITORY, "issue": ISSUE}


class Sender(Client):
    """Sends deliveries as GitHub does."""

    def __init__(self, session: aiohttp.ClientSession, it: WebhookDeployment) -> None:
        super().__init__(session, it.url)
        self.it = it

    async def deliver(
        self, payload: Any, event: str = "issues", *, delivery: str | None = None, secret: str = SECRET, **headers: str
    ) -> Reply:
        body = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
        sent = {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": str(uuid.uuid4()) if delivery is None else delivery,
            "X-Hub-Signature-256": sign(secret, body),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return await self.ask("POST", "", data=io.BytesIO(body), headers=sent)

    async def stored(self) -> int:
        """How many deliveries the database has."""
        return await self.it.deployment.parts.database.read(_count)

    async def titles(self) -> dict[str, str]:
        await self.it.applied()
        return {id_: body["title"] for id_, body in (await self.it.deployment.bodies("issue")).items()}


def _count(tx: Transaction) -> int:
    return tx.execute(select(func.count()).select_from(github_deliveries)).scalar_one()


@pytest.fixture
async def sender(tmp_path: Path, embedded_url: str) -> AsyncGenerator[Sender]:
    async with webhook_deployment(tmp_path, embedded_url, registers=False) as it, aiohttp.ClientSession() as session:
        yield Sender(session, it)


async def test_a_delivery_is_answered_with_its_id_and_applied(sender: Sender):
    reply = await sender.deliver(OPENED, delivery="abc-1")
    assert (reply.status, reply.json) == (202, {"delivery": "abc-1", "result": "accepted"})
    assert await sender.titles() == {"1": "one"}
    [shown] = await _recent(sender)
    assert (shown.event, shown.action, shown.repository, shown.documents) == ("issues", "opened", "octocat/hello", 1)
    assert shown.applied_at is not None


async def _recent(sender: Sender) -> list[deliveries.DeliveryView]:
    return await sender.it.deployment.parts.database.read(lambda tx: deliveries.recent(tx, limit=10))


async def test_a_repeated_delivery_is_a_duplicate(sender: Sender):
    await sender.deliver(OPENED, delivery="abc-1")
    await sender.titles()
    changed = {**OPENED, "issue": {**ISSUE, "title": "two", "updated_at": "2026-01-03T00:00:00Z"}}
    reply = await sender.deliver(changed, delivery="abc-1")
    assert (reply.status, reply.json["result"]) == (202, "duplicate")
    assert await sender.titles() == {"1": "one"}
    assert await sender.stored() == 1


async def test_concurrent_copies_of_a_delivery_are_accepted_once(sender: Sender):
    replies = await asyncio.gather(*(sender.deliver(OPENED, delivery="abc-1") for _ in range(20)))
    results = sorted(reply.json["result"] for reply in replies)
    assert results == ["accepted", *["duplicate"] * 19]


async def test_each_of_several_secrets_is_valid_and_any_other_is_refused(sender: Sender):
    assert (await sender.deliver(OPENED, secret="an-older-secret-of-it")).status == 202
    for headers in ({}, {"X_Hub_Signature_256": "sha256="}, {"X_Hub_Signature_256": "sha1=" + "0" * 40}):
        reply = await sender.deliver(OPENED, secret="a-wrong-secret-of-it", **headers)
        assert (reply.status, reply.problem) == (401, "signature-refused")
        assert SECRET not in reply.body.decode()
    assert await sender.stored() == 1


async def test_nothing_is_parsed_before_the_signature_is_verified(sender: Sender):
    reply = await sender.deliver(b"{no json", secret="a-wrong-secret-of-it")
    assert reply.status == 401
    reply = await sender.deliver(b"\xff\xfe", "no event at all", secret="a-wrong-secret-of-it")
    assert reply.status == 401


@pytest.mark.parametrize(
    "payload",
    [
        b"{no json",
        b"[]",
        b"null",
        b"\xff",
        b'{"a":' * 5_000,
        {"action": "opened"},
        {**OPENED, "repository": None},
        {**OPENED, "repository": {**REPOSITORY, "full_name": "no slash"}},
        {**OPENED, "issue": None},
        {**OPENED, "issue": {**ISSUE, "id": None}},
        {**OPENED, "issue": {**ISSUE, "id": "1"}},
        {**OPENED, "action": "with\x00nul"},
    ],
    ids=str,
)
async def test_an_unusable_payload_is_refused(sender: Sender, payload: Any):
    reply = await sender.deliver(payload)
    assert (reply.status, reply.problem) == (422, "invalid"), reply.body
    assert await sender.stored() == 0


@pytest.mark.parametrize("delivery", ["", "with space", "x" * 101, "a'b"])
async def test_a_delivery_without_a_valid_id_is_refused(sender: Sender, delivery: str):
    reply = await sender.deliver(OPENED, delivery=delivery)
    assert (reply.status, reply.problem) == (422, "invalid")


async def test_pings_and_unknown_events_are_answered_and_not_stored(sender: Sender):
    pong = await sender.deliver({"zen": "x", "hook_id": 1}, "ping")
    ignored = await sender.deliver({"zen": "x"}, "watch")
    assert [(each.status, each.json["result"]) for each in (pong, ignored)] == [(202, "pong"), (202, "ignored")]
    assert await sender.stored() == 0


async def test_a_body_that_is_too_large_is_refused(sender: Sender):
    webhooks = sender.it.deployment.webhooks
    webhooks.settings = webhooks.settings.model_copy(update={"largest_body": 2_000})
    reply = await sender.deliver({**OPENED, "issue": {**ISSUE, "body": "x" * 2_000}})
    assert (reply.status, reply.problem) == (413, "too-large")
    assert await sender.stored() == 0


async def test_too_many_concurrent_bodies_are_refused_with_a_retry_time(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tidegate.systems.github.webhooks.receiver._MOST_BYTES", 100)
    with sender.it.deployment.webhooks.room_for(60):
        reply = await sender.deliver(OPENED)
    assert (reply.status, reply.problem) == (503, "too-many")
    assert int(reply.headers["Retry-After"]) > 0
    assert (await sender.deliver(OPENED)).status == 202, "a single one always fits"


async def test_a_database_that_does_not_write_is_reported_before_github_times_out(
    sender: Sender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tidegate.systems.github.webhooks.receiver._ANSWER_WITHIN_S", 0.2)
    with closing(sqlite3.connect(tmp_path / "tidegate.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = await sender.deliver(OPENED, delivery="abc-1")
        assert (refused.status, refused.problem) == (503, "unavailable")
        assert int(refused.headers["Retry-After"]) > 0
        other.execute("ROLLBACK")
    monkeypatch.undo()
    again = await sender.deliver(OPENED, delivery="abc-1")
    assert again.json["result"] in ("accepted", "duplicate"), "the first one may have been stored after its answer"
    assert await sender.titles() == {"1": "one"}


async def test_many_concurrent_deliveries_are_all_stored(sender: Sender):
    payloads = [{**OPENED, "issue": {**ISSUE, "id": number}} for number in range(1, 301)]
    replies = await asyncio.gather(*(sender.deliver(payload) for payload in payloads))
    assert {reply.status for reply in replies} == {202}
    assert len(await sender.titles()) == 300


async def test_an_item_that_no_store_accepts_is_refused(sender: Sender):
    huge = {**OPENED, "issue": {**ISSUE, "id": 2, "body": "x" * 5 * 1024 * 1024}}
    assert (await sender.deliver(huge)).status == 422, "a document has a largest size"
    assert await sender.stored() == 0


def test_the_secret_is_never_shown():
    settings = GithubWebhookSettings(secrets=(SecretStr(SECRET),))
    assert SECRET not in f"{settings!r} {settings}"
    with pytest.raises(ValidationError) as refused:
        GithubWebhookSettings(secrets=(SecretStr("short"),))
    assert "short" not in str(refused.value).replace("shorter", "")


async def test_deliveries_are_deleted_after_a_while_and_bodies_once_they_are_applied(sender: Sender):
    await sender.deliver(OPENED)
    await sender.titles()
    database = sender.it.deployment.parts.database
    bodies = await database.read(lambda tx: list(tx.execute(select(github_deliveries.c.body)).scalars()))
    assert bodies == [None]
