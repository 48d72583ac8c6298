import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import InvalidArgument
from tidegate.engine.schedules.firings import LONGEST_KEY
from tidegate.engine.sqs.forwarder import read_ticket, write_ticket
from tidegate.engine.sqs.inbox import ScheduleTrigger, read_trigger
from tidegate.engine.sqs.queue import Received

EVENT: dict[str, Any] = {
    "version": "0",
    "id": "17793124-05d4-b198-2fde-7ededc63b103",
    "detail-type": "Nightly crawl",
    "source": "shop.clock",
    "account": "111122223333",
    "time": "2026-11-16T02:00:00Z",
    "region": "us-east-1",
    "resources": [],
    "detail": {"schedule": 7},
}


def received(body: Any) -> Received:
    return Received("sqs-id", body if isinstance(body, str) else json.dumps(body), "receipt", 1)


def through_sns(body: Any) -> dict[str, str]:
    return {"Type": "Notification", "MessageId": "sns-id", "TopicArn": "arn:…", "Message": json.dumps(body)}


@pytest.mark.parametrize(
    ("body", "trigger"),
    [
        (EVENT, ScheduleTrigger(7, EVENT["id"])),
        (through_sns(EVENT), ScheduleTrigger(7, EVENT["id"])),
        ({"schedule": 7, "key": "2026-11-16"}, ScheduleTrigger(7, "2026-11-16")),
        ({"schedule": "7", "key": "k"}, ScheduleTrigger(7, "k")),
        ({"schedule": 7}, ScheduleTrigger(7, "sqs-id")),
        (through_sns({"schedule": 7}), ScheduleTrigger(7, "sns-id")),
    ],
)
def test_a_trigger_is_parsed_in_every_supported_form(body: Any, trigger: ScheduleTrigger):
    assert read_trigger(received(body)) == trigger


@pytest.mark.parametrize(
    "body",
    [
        *("", "no JSON", "[7]", "7", "null", '"text"', "[" * 5000),
        *({}, {"key": "k"}, {"schedule": None}, {"schedule": True}, {"schedule": -1}, {"schedule": 7.5}),
        *({"schedule": "seven"}, {"schedule": "²"}, {"schedule": 2**63}, {"schedule": "9" * 5000}),
        *({"schedule": 7, "key": ""}, {"schedule": 7, "key": 3}, {"schedule": 7, "key": "k" * (LONGEST_KEY + 1)}),
        *({"schedule": 7, "key": "nul\0"}, EVENT | {"detail": {}}, EVENT | {"id": None}),
        *(through_sns("text"), {"Type": "Notification", "Message": "no JSON"}),
    ],
)
def test_an_unknown_trigger_is_refused(body: Any):
    with pytest.raises(InvalidArgument):
        read_trigger(received(body))


@given(st.text() | st.builds(json.dumps, st.recursive(st.none() | st.integers() | st.text(), st.lists)))
def test_any_message_is_parsed_or_refused(body: str):
    with pytest.raises(InvalidArgument):
        read_trigger(received(body))
    with pytest.raises(InvalidArgument):
        read_ticket(body, stream="jobs")


@pytest.mark.parametrize("body", ["AKIA and its secret", '"a secret"'])
def test_the_error_for_an_unparsable_message_does_not_quote_it(body: str):
    with pytest.raises(InvalidArgument) as no_trigger:
        read_trigger(received(body))
    with pytest.raises(InvalidArgument) as no_ticket:
        read_ticket(body, stream="jobs")
    assert "secret" not in f"{no_trigger.value} {no_ticket.value}"


def test_a_ticket_contains_only_the_position_of_its_message():
    body = write_ticket("tidegate:{shard-0}:jobs", "1763-5")
    assert json.loads(body) == {"stream": "tidegate:{shard-0}:jobs", "message": "1763-5"}
    assert read_ticket(body, stream="tidegate:{shard-0}:jobs") == "1763-5"


@pytest.mark.parametrize("message", ["", "5", "1-2-3", "-1-2", "1-", "a-b", f"{2**64}-0", "9" * 30 + "-1", "١-٢"])
def test_an_invalid_message_id_is_never_sent_to_the_server(message: str):
    with pytest.raises(InvalidArgument, match="id of a message"):
        read_ticket(write_ticket("jobs", message), stream="jobs")


def test_a_ticket_of_another_deployment_is_recognised():
    with pytest.raises(InvalidArgument, match="another deployment"):
        read_ticket(write_ticket("other", "1-1"), stream="jobs")
