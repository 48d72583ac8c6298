from datetime import timedelta

import pytest
from pydantic import ValidationError

from tests.engine.sqs.conftest import settings_for
from tests.engine.sqs.partial_failures import picky_server
from tests.servers.moto import SECRET_KEY
from tests.servers.proxy import Proxy
from tests.servers.sqs import SqsServer
from tidegate.core.errors import InvalidArgument, InvalidSettings, ServerRefused
from tidegate.engine.sqs.opening import open_aws, open_queues
from tidegate.engine.sqs.queue import Queue, QueueUnavailable, Received
from tidegate.engine.sqs.settings import AwsSettings
from tidegate.primitives.stream import Stream, TicketedStream
from tidegate.storage.valkey import Valkey


async def all_of(queue: Queue) -> list[Received]:
    found: list[Received] = []
    while more := await queue.receive(10, 0):
        found += more
    return found


async def test_more_than_a_batch_is_sent_received_and_deleted(queue: Queue, sqs: SqsServer, url: str):
    assert await queue.send({f"n{n}": f"body {n}" for n in range(25)}) is None

    received = await all_of(queue)

    assert sorted(message.body for message in received) == sorted(f"body {n}" for n in range(25))
    assert {message.receives for message in received} == {1}
    assert sqs.held(url) == (0, 25)
    await queue.delete([message.receipt for message in received])
    assert sqs.held(url) == (0, 0)


async def test_an_undeleted_message_is_redelivered_unless_its_visibility_timeout_is_extended(queue: Queue):
    await queue.send({"a": "forgotten", "b": "in hand"})
    received = {message.body: message for message in await queue.receive(10, 1)}

    queue.visibility = timedelta(seconds=30)
    await queue.hide([received["in hand"].receipt])

    [again] = await queue.receive(10, 3)
    assert again[:2] == received["forgotten"][:2]
    assert again.receives == 2


async def test_the_failed_items_of_a_partially_accepted_batch_are_named(sqs: SqsServer, url: str):
    async with picky_server(sqs) as picky, open_queues(settings_for(sqs, url, endpoint=picky.endpoint)) as (_, queue):
        assert queue is not None
        picky.is_picky = True
        unsent = await queue.send({f"n{n}": f"body {n}" for n in range(12)})

        assert unsent is not None
        assert sorted(unsent.names) == sorted(f"n{n}" for n in range(12) if n not in (0, 10))
        assert isinstance(unsent.error, QueueUnavailable)
        received = await queue.receive(10, 1)
        await queue.delete([message.receipt for message in received])  # of which one is not: told, and no more
        assert sqs.held(url) == (0, 1)


async def test_throttling_by_the_queue_is_retryable(sqs: SqsServer, url: str):
    async with picky_server(sqs) as picky, open_queues(settings_for(sqs, url, endpoint=picky.endpoint)) as (_, queue):
        assert queue is not None
        picky.throttles = 1
        with pytest.raises(QueueUnavailable, match="Rate exceeded"):
            await queue.receive(1, 0)
        assert await queue.receive(1, 0) == []


async def test_an_unavailable_server_and_a_refusal_are_different_errors(
    distant: Queue, wire: Proxy, sqs: SqsServer, url: str, monkeypatch: pytest.MonkeyPatch
):
    await wire.refuse()
    with pytest.raises(QueueUnavailable, match="SQS"):
        await distant.receive(10, 0)
    unsent = await distant.send({"a": "body"})
    assert unsent is not None
    assert (unsent.names, type(unsent.error)) == (["a"], QueueUnavailable)

    async with open_queues(settings_for(sqs, f"{url}-gone")) as (_, gone):
        assert gone is not None
        with pytest.raises(ServerRefused, match=r"does not exist.*Check the address"):
            await gone.receive(10, 0)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    async with open_queues(settings_for(sqs, url)) as (_, nobodys):
        assert nobodys is not None
        with pytest.raises(ServerRefused, match="Unable to locate credentials") as refused:
            await nobodys.receive(10, 0)
        assert SECRET_KEY not in str(refused.value)


async def test_without_a_configured_queue_nothing_is_opened(embedded: Valkey):
    passage = TicketedStream(embedded, Stream(embedded, embedded.unit("work"), "jobs"))
    async with open_aws(AwsSettings(), passage, "me") as aws:
        assert (aws.intake, dict(aws.services), list(aws.sources), dict(aws.inbox(_fire))) == (None, {}, [], {})


async def _fire(schedule_id: int, firing_key: str) -> None: ...


async def test_an_unknown_region_is_a_settings_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(InvalidSettings, match="TIDEGATE_AWS__REGION"):
        async with open_queues(AwsSettings(task_queue_url="https://sqs.test/1/tasks")):
            pass


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("task_queue_url", "https://sqs.test/1/tasks.fifo"),
        ("task_queue_url", "tasks"),
        ("endpoint_url", "https://me:secret@sqs.test"),
        ("region", "EU West"),
        ("visibility_timeout", timedelta(milliseconds=10)),
        ("visibility_timeout", timedelta(days=1)),
        ("trigger_attempts", 0),
        ("access_key", "AKIA"),
    ],
)
def test_conflicting_settings_are_refused(name: str, value: object):
    with pytest.raises(ValidationError, match=name):
        AwsSettings.model_validate({name: value})


async def test_invalid_arguments_are_refused(queue: Queue):
    for count, wait_s in ((0, 0), (11, 0), (1, -1)):
        with pytest.raises(InvalidArgument):
            await queue.receive(count, wait_s)
