"""Dead letters of both kinds in one list: looked at, replayed, removed."""

from typing import Any

import pytest

from tests.http.serving import Served
from tests.waiting import look_again, patience
from tidegate.engine.run_counters import run_ended
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import Event

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "ghp_" + "s3cret" * 6


def bury_events(tx: Transaction, *events: Event) -> list[int]:
    """Events that failed for good, as a handler's last failure leaves them."""
    outbox.add(tx, *events)
    ids = [row.id for row in outbox.pending_page(tx, limit=500) if row.event_id in {each.event_id for each in events}]
    for number in ids:
        outbox.mark_dead(tx, number, attempts=12, error=f"the handler said {SECRET}")
    return ids


async def bury(deployment: Served, *payloads: Any, kind: str = "test.event") -> list[str]:
    events = [Event(kind, key=f"thing:{n}", payload=payload) for n, payload in enumerate(payloads)]
    ids = await deployment.collection.parts.database.transaction(bury_events, *events)
    return [f"outbox-{number}" for number in ids]


async def bury_messages(deployment: Served, count: int) -> list[str]:
    alarms = deployment.collection.parts.alarms
    consumer = alarms.consumer("tester")
    await alarms.add([{b"what": f"alarm {n}".encode(), b"token": b"\xff\xfe"} for n in range(count)])
    messages = await consumer.read(count, within_s=60)
    for message in messages:
        assert await consumer.fail(message, f"nobody knows {message.fields[b'what'].decode()}")
    await consumer.leave()
    return [f"alarms-{letter.id}" for letter in (await alarms.dead_letters.page()).letters]


async def listed(deployment: Served, query: str = "") -> list[dict[str, Any]]:
    answer = await deployment.client.get(f"/v1/dead-letters{query}")
    assert answer.status == 200, answer
    return answer.json["letters"]


async def clear(deployment: Served) -> None:
    """Nothing is left of what earlier tests buried, or had replayed."""
    alarms = deployment.collection.parts.alarms
    if (await alarms.status()).depth:
        consumer = alarms.consumer("tester")
        await consumer.ack([message.id for message in await consumer.read(100, within_s=5)])
        await consumer.leave()
    for letter in await listed(deployment, "?kind=message"):
        await deployment.client.ask("DELETE", f"/v1/dead-letters/{letter['id']}")
    for letter in await listed(deployment, "?kind=event"):
        number = int(letter["id"].removeprefix("outbox-"))
        await deployment.collection.parts.database.transaction(_forget, number)


def _forget(tx: Transaction, number: int) -> None:
    outbox.replay(tx, ids=[number])
    outbox.remove(tx, [number])


async def test_dead_events_and_messages_are_in_one_paginated_list(deployment: Served):
    await clear(deployment)
    events = await bury(deployment, {"run_id": 1, "token": SECRET}, ["anything"], 3)
    messages = await bury_messages(deployment, 3)

    everything = await listed(deployment)
    found, link = list[str](), "?limit=2"
    while link:
        page = (await deployment.client.get(f"/v1/dead-letters{link}")).json
        found += [letter["id"] for letter in page["letters"]]
        link = (page["next"] or "").removeprefix("/v1/dead-letters")

    assert found == [letter["id"] for letter in everything] == [*events, *messages]
    assert [letter["kind"] for letter in everything] == ["event"] * 3 + ["message"] * 3
    assert [letter["id"] for letter in await listed(deployment, "?kind=event")] == events
    assert [letter["id"] for letter in await listed(deployment, "?kind=message&limit=2")] == messages[:2]
    first, last = everything[0], everything[-1]
    assert (first["name"], first["key"], first["attempts"]) == ("test.event", "thing:0", 12)
    assert (last["name"], last["reason"], last["attempts"]) == ("alarms", "nobody knows alarm 2", 1)
    assert last["contents"]["what"] == "alarm 2"
    assert SECRET not in str(everything), "neither in a payload nor in a reason"


async def test_a_replayed_event_is_delivered(deployment: Served):
    run = await deployment.collect(deployment.logins[0], include=["USER_BASIC"])
    [letter] = await bury(deployment, {"run_id": run["id"]}, kind=run_ended("github"))

    replayed = await deployment.client.post(f"/v1/dead-letters/{letter}/replay")

    assert (replayed.status, replayed.json) == (200, {"id": letter, "outcome": "replayed"})
    async with patience():
        while (await deployment.collection.parts.database.read(outbox.depth)).pending:
            await look_again()
    assert letter not in [each["id"] for each in await listed(deployment)]
    assert (await deployment.client.post(f"/v1/dead-letters/{letter}/replay")).status == 404, "once"


async def test_a_replayed_message_is_in_its_stream_again(deployment: Served):
    await clear(deployment)
    [letter] = await bury_messages(deployment, 1)

    assert (await deployment.client.post(f"/v1/dead-letters/{letter}/replay")).status == 200

    alarms = deployment.collection.parts.alarms
    consumer = alarms.consumer("tester")
    [message] = await consumer.read(10, within_s=60)
    assert (message.fields[b"what"], message.deliveries) == (b"alarm 0", 1)
    await consumer.ack([message.id])
    await consumer.leave()


@pytest.mark.parametrize("kind", ["event", "message", None])
async def test_dead_letters_are_replayed_together_or_by_kind(kind: str | None, deployment: Served):
    await clear(deployment)
    run = await deployment.collect(deployment.logins[0], include=["USER_BASIC"])
    events = await bury(deployment, *[{"run_id": run["id"]}] * 2, kind=run_ended("github"))
    messages = await bury_messages(deployment, 2)
    wanted = {"event": events, "message": messages, None: [*events, *messages]}[kind]

    replayed = await deployment.client.post("/v1/dead-letters/replay", None if kind is None else {"kind": kind})

    assert (replayed.status, replayed.json) == (200, {"replayed": len(wanted)})
    left = {letter["id"] for letter in await listed(deployment)}
    assert not left & set(wanted), "they are no dead letters any more"
    assert left >= {*events, *messages} - set(wanted), "and what was not asked for is where it was"


async def test_a_message_can_be_discarded_and_an_event_cannot(deployment: Served):
    await clear(deployment)
    [event], [message] = await bury(deployment, 1), await bury_messages(deployment, 1)

    removed = await deployment.client.ask("DELETE", f"/v1/dead-letters/{message}")
    refused = await deployment.client.ask("DELETE", f"/v1/dead-letters/{event}")

    assert (removed.status, removed.json) == (200, {"id": message, "outcome": "removed"})
    assert (refused.status, refused.problem) == (409, "conflict")
    assert [letter["id"] for letter in await listed(deployment)] == [event]


@pytest.mark.parametrize(
    "letter",
    ["outbox-4711", "outbox-0", "outbox-1-1", "alarms-1-1", "alarms-1", "nowhere-1-1", f"outbox-{2**63}", "..", "x"],
)
async def test_an_unknown_dead_letter_is_not_found(letter: str, deployment: Served):
    for method, path in (("POST", f"/v1/dead-letters/{letter}/replay"), ("DELETE", f"/v1/dead-letters/{letter}")):
        answer = await deployment.client.ask(method, path)
        assert (answer.status, answer.problem) == (404, "not-found")


@pytest.mark.parametrize("after", ["outbox-0", "alarms-7", f"alarms-{2**63}-0", f"outbox-{2**63}", "Jobs-1-1"])
async def test_an_invalid_page_cursor_is_refused(after: str, deployment: Served):
    answer = await deployment.client.get(f"/v1/dead-letters?after={after}")

    assert (answer.problem, answer.json["field"]) == ("invalid", "after")
