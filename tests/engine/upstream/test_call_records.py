"""What is recorded of a request."""

from datetime import UTC, datetime, timedelta

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from tidegate.core.clock import ManualClock
from tidegate.engine.upstream import Answer, ConnectFailed, Head, Permit, Request, TimedOut, Truncated
from tidegate.engine.upstream.call_records import LONGEST_REQUEST_ID, CallRecorder, request_id_of

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
REQUEST = Request(url="https://api.example/items?page=2&access_token=abc", purpose="items", method="POST")


def head(**headers: str) -> Head:
    given = CIMultiDictProxy(CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()}))
    return Head(status=202, headers=given, url=REQUEST.url, received_at=NOW)


async def test_a_response_is_recorded_without_secrets():
    clock = ManualClock(NOW)

    async def fetch(request: Request, _permit: Permit | None) -> Answer:
        clock.advance(timedelta(seconds=2))
        begun = head(X_Request_Id="abc-1")
        return Answer(
            status=begun.status,
            headers=begun.headers,
            url=request.url,
            received_at=NOW,
            body=b"12345",
            elapsed_ms=500.4,
        )

    recorder = CallRecorder(fetch, clock)
    await recorder.fetch(REQUEST, None)

    call = recorder.call
    assert call is not None
    assert (call.method, call.url) == ("POST", "https://api.example/items?page=2&access_token=***")
    assert (call.status, call.response_bytes, call.request_id, call.duration_ms) == (202, 5, "abc-1", 500)
    assert NOW + timedelta(seconds=1.4) < call.sent_at < NOW + timedelta(seconds=1.6)


async def test_the_secret_of_a_request_is_not_recorded_under_any_parameter_name():
    async def fetch(request: Request, _permit: Permit | None) -> Answer:
        raise Truncated(request, "cut off", was_sent=True, head=head(X_Request_Id="to-hunter2+hunter2"))

    recorder = CallRecorder(fetch, ManualClock(NOW), "hunter2+hunter2")
    url = "https://api.example/hunter2+hunter2/items?appid=hunter2%2Bhunter2&sig=abc"
    with pytest.raises(Truncated):
        await recorder.fetch(Request(url=url, purpose="items"), None)

    call = recorder.call
    assert call is not None
    assert (call.url, call.request_id) == ("https://api.example/***/items?appid=***&sig=***", "to-***")


@pytest.mark.parametrize("began", [head(X_GitHub_Request_Id="C0:1"), None])
async def test_a_request_with_unknown_outcome_is_recorded_with_the_known_facts(began: Head | None):
    clock = ManualClock(NOW)

    async def fetch(request: Request, _permit: Permit | None) -> Answer:
        clock.advance(timedelta(seconds=2))
        if began is None:
            raise TimedOut(request, "answer", was_sent=None)
        raise Truncated(request, "cut off", was_sent=True, head=began)

    recorder = CallRecorder(fetch, clock)
    with pytest.raises((TimedOut, Truncated)):
        await recorder.fetch(REQUEST, None)

    call = recorder.call
    assert call is not None
    assert (call.sent_at, call.duration_ms, call.response_bytes) == (NOW, 2000, None)
    assert (call.status, call.request_id) == ((None, None) if began is None else (202, "C0:1"))


async def test_a_request_that_was_not_sent_is_not_recorded():
    async def fetch(request: Request, _permit: Permit | None) -> Answer:
        raise ConnectFailed(request, "refused", was_sent=False)

    recorder = CallRecorder(fetch, ManualClock(NOW))
    with pytest.raises(ConnectFailed):
        await recorder.fetch(REQUEST, None)

    assert recorder.call is None


def test_identifiers_of_any_length_and_content_can_be_stored():
    assert request_id_of(head(Date="today")) is None
    assert request_id_of(head(X_GitHub_Request_Id="C0:1", X_Request_Id="other")) == "C0:1"
    found = request_id_of(head(X_Request_Id="a\udcff" + "b" * 300))
    assert found is not None
    assert len(found) == LONGEST_REQUEST_ID
    assert found.startswith("a\\udcff")
