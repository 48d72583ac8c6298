"""Groups of dead events and messages over HTTP, replayed and discarded in batches."""

from typing import Any

import pytest

from tests.engine.api.test_dead_letters import bury, bury_messages, clear
from tests.http.serving import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROUPS = "/v1/dead-letters/groups"


async def groups(deployment: Served, kind: str) -> list[dict[str, Any]]:
    answer = await deployment.client.get(f"{GROUPS}?kind={kind}")
    assert answer.status == 200, answer
    assert (answer.json["incomplete"], answer.json["unknown"]) == ([], [])
    return answer.json["groups"]


async def test_events_are_grouped_by_kind_and_reason_and_replayed_in_batches(deployment: Served):
    await clear(deployment)
    await bury(deployment, *range(3), kind="test.paid")
    await bury(deployment, 1, kind="test.sent")

    largest, other = await groups(deployment, "events")
    everything = (await deployment.client.get(GROUPS)).json["groups"]
    place = f"{GROUPS}/{largest['id']}"
    discarded = await deployment.client.post(f"{place}/discard", {})
    first = await deployment.client.post(f"{place}/replay", {"limit": 2})
    rest = await deployment.client.post(f"{place}/replay", {"after": first.json["next_after"]})
    again = await deployment.client.post(f"{place}/replay")

    assert (largest["name"], largest["count"], largest["can_discard"]) == ("test.paid", 3, False)
    assert (other["name"], other["count"]) == ("test.sent", 1)
    assert {largest["id"], other["id"]} <= {group["id"] for group in everything}
    assert (discarded.status, discarded.problem) == (409, "conflict")
    assert (first.json["settled"], first.json["stayed"]) == (2, 0)
    assert rest.json == {"group": largest["id"], "settled": 1, "stayed": 0, "next_after": None}
    assert (again.status, again.json["settled"]) == (200, 0), "it can be repeated"


async def test_messages_are_grouped_by_stream_and_discarded(deployment: Served):
    await clear(deployment)
    await bury_messages(deployment, 12)

    [group] = await groups(deployment, "messages")
    discarded = await deployment.client.post(f"{GROUPS}/{group['id']}/discard", {"limit": 5})
    replayed = await deployment.client.post(f"{GROUPS}/{group['id']}/replay", {"after": discarded.json["next_after"]})

    assert (group["source"], group["name"], group["count"]) == ("alarms", "message", 12)
    assert (group["reason"], group["example"]) == ("nobody knows alarm …", "nobody knows alarm 11")
    assert (discarded.json["settled"], replayed.json["settled"]) == (5, 7)
    assert await groups(deployment, "messages") == []


async def test_unknown_kinds_and_malformed_groups_are_refused(deployment: Served):
    client = deployment.client
    for path, body, status in (
        ("nothing-0123456789abcdef/replay", {}, 404),
        ("events-xyz/replay", {}, 404),
        ("events-0123456789abcdef/replay", {"limit": 501}, 422),
        ("events-0123456789abcdef/replay", {"everything": True}, 422),
        ("events-0123456789abcdef/replay", {"after": "yesterday"}, 422),
        ("events-0123456789abcdef/replay", {"after": "9" * 30}, 422),
        ("messages-0123456789abcdef/replay", {"after": "alarms"}, 422),
        ("messages-0123456789abcdef/replay", {"after": "nothing-17-0"}, 200),
        ("crawl-0123456789abcdef/replay", {"after": "-1"}, 422),
        ("events-0123456789abcdef/replay", {}, 200),
    ):
        assert (await client.post(f"{GROUPS}/{path}", body)).status == status, path
    assert (await client.get(f"{GROUPS}?kind=nothing")).status == 404
