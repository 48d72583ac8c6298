"""Whatever goes wrong is told as a problem that says what happened, and tells nothing that it should not."""

import asyncio
import io
import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.http.serving import Served
from tests.waiting import look_again, patience
from tidegate.core.errors import (
    CommitUnknown,
    ContractBroken,
    DatabaseUnavailable,
    InvalidArgument,
    NotFound,
    ServerRefused,
    ValkeyUnavailable,
)
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine.runs import RunActive
from tidegate.http import dispatch
from tidegate.http.problems import ProblemType, RequestFailed, to_request_failed

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = {"content-type": "application/json"}
SECRET = "ghp_" + "s3cret" * 6


@contextmanager
def log_lines() -> Generator[list[dict[str, Any]]]:
    """What is logged in the block, read at its end."""
    out, lines = io.StringIO(), list[dict[str, Any]]()
    configure_logs("json", "info", stream=out)
    try:
        yield lines
    finally:
        configure_logs("console", "warning")
        lines += [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("body", "field", "detail"),
    [
        ({}, "login", "exactly one of login and logins is required"),
        ({"login": "octocat", "logins": ["octocat"]}, "login", "exactly one of login and logins is required"),
        ({"login": "octocat", "lgin": 1}, "lgin", "lgin: unknown field"),
        ({"login": 7}, "login", "Expected `str | null`, got `int`"),
        ({"login": "octo cat"}, "login", "must be a login"),
        ({"login": "x" * 40}, "login", "must be a login (octocat), a repository (octocat/hello-world)"),
        ({"logins": []}, "logins", "length >= 1"),
        ({"logins": ["a", "b", ""]}, "logins[2]", "length >= 1"),
        ({"logins": ["a"] * 501}, "logins", "length <= 500"),
        ({"login": "octocat", "since": "soon"}, "since", "must be a date or a time"),
        ({"login": "octocat", "include": ["STARS"]}, "include", "must be among"),
        ({"login": "octocat", "include": []}, "include", "length >= 1"),
        ({"login": "octocat", "full": "yes"}, "full", "Expected `bool`"),
        ({"login": "octocat", "trigger": "scheduled"}, "trigger", "'scheduled' is not one of manual, signup"),
        ([], None, "Expected `object`"),
    ],
)
async def test_an_invalid_value_is_named_with_the_reason(body: Any, field: str | None, detail: str, deployment: Served):
    answer = await deployment.client.post("/v1/runs", body)

    assert (answer.status, answer.problem) == (422, "invalid")
    assert answer.json.get("field") == field
    assert detail in answer.json["detail"]
    begun = await deployment.client.get("/v1/runs?login=octocat")
    assert begun.json["runs"] == [], "and nothing was begun"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/runs?limit=0", "limit"),
        ("/v1/runs?limit=501", "limit"),
        ("/v1/runs?limit=many", "limit"),
        ("/v1/runs?limit=1&limit=2", "limit"),
        ("/v1/runs?state=asleep", "state[0]"),
        ("/v1/runs?stat=running", "stat"),
        ("/v1/runs?login=", "login"),
        ("/v1/runs?login=octo.cat", "login"),
        ("/v1/schedules?login=octo.cat", "login"),
        ("/v1/users/octo.cat/statistics", "login"),
        ("/v1/runs?before=0", "before"),
        ("/v1/runs?before=null", "before"),
        ("/v1/dead-letters?kind=null", "kind"),
        (f"/v1/runs?before={2**63}", "before"),
        ("/v1/runs/1?verbose=1", "verbose"),
        ("/v1/runs/1/jobs?after=-1", "after"),
        ("/v1/statistics?days=367", "days"),
        ("/v1/dead-letters?after=..", "after"),
        ("/v1/dead-letters?kind=post", "kind"),
        ("/healthz?x", "x"),
    ],
)
async def test_an_invalid_parameter_is_named(path: str, field: str, deployment: Served):
    answer = await deployment.client.get(path)

    assert (answer.status, answer.problem, answer.json["field"]) == (422, "invalid", field)


@pytest.mark.parametrize(
    ("body", "headers", "status", "problem"),
    [
        (b'{"login": ', JSON, 400, "bad-json"),
        (b"\xff\xfe", JSON, 400, "bad-json"),
        (b'{"login": "\xff"}', JSON, 400, "bad-json"),
        (b"", JSON, 400, "bad-json"),
        (b'{"login": "a"}', {"content-type": "text/plain"}, 415, "not-json"),
        (b'{"login": "a"}', {"content-type": "application/x-www-form-urlencoded"}, 415, "not-json"),
        (b'{"login": "a"}', {"content-type": "application/json; charset=latin-1"}, 415, "not-json"),
        (b'{"login": "a"}', {"content-type": "application/jsonp"}, 415, "not-json"),
        (b'{"login": ' * 100_000, JSON, 422, "invalid"),
        (b'{"login": "' + b"a" * 1_100_000 + b'"}', JSON, 413, "too-large"),
    ],
    ids=range(10),
)
async def test_an_unreadable_body_is_refused(
    body: bytes, headers: dict[str, str], status: int, problem: str, deployment: Served
):
    answer = await deployment.client.ask("POST", "/v1/runs", data=io.BytesIO(body), headers=headers)

    assert (answer.status, answer.problem) == (status, problem)


async def test_a_body_without_a_length_is_refused_at_the_size_limit(deployment: Served):
    async def chunks():
        for _ in range(40):
            yield b" " * 64 * 1024

    answer = await deployment.client.ask("POST", "/v1/runs", data=chunks(), headers=JSON)

    assert (answer.status, answer.problem) == (413, "too-large")


async def test_a_slow_request_body_times_out(deployment: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "_BODY_WITHIN", timedelta(milliseconds=200))

    async def chunks():
        yield b'{"login": '
        await asyncio.Event().wait()  # the rest never comes
        yield b'"octocat"}'

    answer = await deployment.client.ask("POST", "/v1/runs", data=chunks(), headers=JSON)

    assert (answer.status, answer.problem) == (408, "too-slow")


async def test_a_client_that_disconnects_during_its_body_affects_no_other(deployment: Served):
    address = urlsplit(deployment.client.url)
    with log_lines() as lines:
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        head = (
            b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
        )
        writer.write(head + b'{"login": ')
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        async with patience():
            while (await deployment.client.get("/v1/runs?login=octocat")).json["runs"]:
                await look_again()

    assert [line["event"] for line in lines if line["event"] == "http.failed"] == []


async def test_a_route_without_a_body_accepts_none_or_an_empty_one(deployment: Served):
    path = "/v1/runs/4711/cancel"
    for body in (None, b"", b"{}", b" {} "):
        assert (await deployment.client.ask("POST", path, data=body, headers=JSON)).status == 404
    refused = await deployment.client.ask("POST", path, data=b'{"now": true}', headers=JSON)
    assert (refused.status, refused.json["field"]) == (422, "now")
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert (await deployment.client.ask("POST", path, headers=form)).problem == "not-json"


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/runs/", "/v2/runs", "/v1/runs/1/", "/v1//runs", "/docs/x", "/%00"])
async def test_an_unknown_path_is_not_found(path: str, deployment: Served):
    answer = await deployment.client.get(path)

    assert (answer.status, answer.problem) == (404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/runs", "GET, HEAD, POST"),
        ("DELETE", "/v1/runs/1", "GET, HEAD"),
        ("GET", "/v1/runs/1/cancel", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("OPTIONS", "/v1/runs", "GET, HEAD, POST"),
        ("TRACE", "/metrics", "GET, HEAD"),
        ("PATCH", "/v1/credentials/x", "DELETE, GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_answered_with_the_allowed_methods(
    method: str, path: str, allowed: str, deployment: Served
):
    answer = await deployment.client.ask(method, path)

    assert (answer.status, answer.problem, answer.headers["allow"]) == (405, "method-not-allowed", allowed)


async def test_an_internal_error_shows_only_an_id_that_is_in_the_log(
    deployment: Served, monkeypatch: pytest.MonkeyPatch
):
    def break_down(*_: object) -> None:
        raise RuntimeError(f"at line 7 with {SECRET}")

    monkeypatch.setattr(deployment.collection.cell("github").orchestrator, "cancel", break_down)
    run = await deployment.collect("nobody-at-all")

    with log_lines() as lines:
        answer = await deployment.client.post(f"/v1/runs/{run['id']}/cancel")

    assert (answer.status, answer.problem) == (500, "failed")
    assert b"RuntimeError" not in answer.body
    assert b"line 7" not in answer.body
    [failed] = [line for line in lines if line["event"] == "http.failed"]
    assert failed["request_id"] == answer.json["request_id"]
    assert "RuntimeError: at line 7" in failed["exception"]
    assert SECRET not in json.dumps(lines)
    answered = [line for line in lines if line["event"] == "http.answered" and line["method"] == "POST"]
    assert [(line["status"], line["request_id"]) for line in answered] == [(500, failed["request_id"])]


async def test_malformed_http_is_answered_with_a_problem(deployment: Served):
    address = urlsplit(deployment.client.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(b"HELLO THERE\r\n\r\n")
    async with patience():
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()

    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in head
    assert json.loads(body)["type"] == "/docs#bad-request"


async def test_every_response_has_an_id_a_date_and_is_not_cached(deployment: Served):
    first, second = [await deployment.client.get(path) for path in ("/healthz", "/v1/nothing")]

    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    for answer in (first, second):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT", answer.headers["date"])
        assert "server" not in answer.headers


async def test_successful_reads_are_not_logged(deployment: Served):
    with log_lines() as lines:
        for path in ("/healthz", "/readyz", "/metrics", "/v1/runs", "/v1/runs/4711"):
            await deployment.client.get(path)

    assert [line["path"] for line in lines if line["event"] == "http.answered"] == ["/v1/runs/4711"]


def told(error: Exception) -> RequestFailed:
    failure = to_request_failed(error)
    assert failure is not None
    return failure


@pytest.mark.asyncio(loop_scope="function")
async def test_domain_errors_are_mapped_to_problems():
    for error, kind in (
        (NotFound("run", 1), ProblemType.NOT_FOUND),
        (InvalidArgument("since", "x", "y"), ProblemType.INVALID),
        (DatabaseUnavailable("db at 10.0.0.1"), ProblemType.UNAVAILABLE),
        (ValkeyUnavailable("redis://10.0.0.1"), ProblemType.UNAVAILABLE),
        (ServerRefused("10.0.0.1", "wrong password", remedy="x"), ProblemType.UNAVAILABLE),
        (TimeoutError(), ProblemType.UNAVAILABLE),
        (RunActive("ada", 5), ProblemType.RUN_ACTIVE),
    ):
        assert told(error).kind is kind
        assert "10.0.0.1" not in told(error).detail, "what is behind us is nobody's business"
    assert told(RunActive("ada", 5)).headers["Location"] == "/v1/runs/5"
    assert "outcome is unknown" in told(CommitUnknown("db")).detail
    assert told(DatabaseUnavailable("x")).headers["Retry-After"] == "5"
    assert to_request_failed(ContractBroken("a defect")) is None
    assert to_request_failed(KeyError("x")) is None


@pytest.mark.asyncio(loop_scope="function")
async def test_a_secret_in_a_reason_is_hidden():
    shown = RequestFailed(ProblemType.INVALID, f"the token={SECRET} is no good").problem("id")

    assert SECRET not in shown.detail


@pytest.mark.parametrize(
    ("path", "choices"),
    [
        ("/v1/runs?state=banana", "planning, running, finalizing, completed, failed, canceled"),
        ("/v1/runs/1/jobs?state=banana", "ready"),
    ],
)
async def test_an_invalid_enum_value_is_refused_with_the_valid_ones(path: str, choices: str, deployment: Served):
    detail = (await deployment.client.get(path)).json["detail"]

    assert "'banana' is not one of " in detail
    assert choices in detail


async def test_snapshot_routes_without_kinds_name_the_setting(deployment: Served):
    answer = await deployment.client.get("/v1/snapshots/character/7")

    assert (answer.status, answer.problem) == (404, "not-found")
    assert "TIDEGATE_SNAPSHOTS__GAME__URL and TIDEGATE_SNAPSHOTS__GAME__API_KEY" in answer.json["detail"]
