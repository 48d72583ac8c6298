"""Answers and tasks, made by hand."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

from tidegate.engine.source import Cursor, JobSpec, Task
from tidegate.engine.upstream import Answer
from tidegate.systems.github import kinds
from tidegate.systems.github.states import ListedRepository

API = "https://api.github.com"
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ALLOWED = {
    "x-ratelimit-limit": "5000",
    "x-ratelimit-remaining": "4990",
    "x-ratelimit-reset": str(int(NOW.timestamp()) + 1_800),
    "x-ratelimit-resource": "core",
}
HELLO = ListedRepository(7, "octocat/hello", "R_7", pushed_at="2026-02-01T00:00:00Z")


def answer(
    status: int = 200, body: Any = None, headers: Mapping[str, str] | None = None, *, dated: bool = True
) -> Answer:
    """An answer with the usual headers; `body` is sent as JSON unless it is bytes."""
    lines = CIMultiDict({**ALLOWED, **(headers or {})})
    if dated:
        lines["Date"] = format_datetime(NOW, usegmt=True)
    content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
    return Answer(
        status=status,
        headers=CIMultiDictProxy(lines),
        url=API,
        received_at=NOW,
        body=content,
        elapsed_ms=1.0,
    )


def message(status: int, text: str, **headers: str) -> Answer:
    """An error in GitHub's form; underscores in names of headers are dashes."""
    return answer(status, {"message": text}, {name.replace("_", "-"): value for name, value in headers.items()})


def task(
    kind: str = kinds.REPO_ISSUES, cursor: Cursor | None = None, credential: str = "octocat", **params: Any
) -> Task:
    """The first page of a list of `octocat/hello`, or of octocat's own."""
    of_user = kind.startswith("USER")
    carried = {"login": "octocat"} if of_user else {"repository": msgspec.to_builtins(HELLO)}
    spec = JobSpec(kind=kind, resource="user:octocat" if of_user else HELLO.resource, params={**carried, **params})
    return Task(spec=spec, run_id=5, user_id="1", credential=credential, cursor=cursor)


def follow_up(before: Task, spec: JobSpec) -> Task:
    """The task of a job that followed another."""
    return Task(spec=spec, run_id=before.run_id, user_id=before.user_id, credential=before.credential)


def issue(number: int, updated_at: str) -> dict[str, Any]:
    """An item of a list."""
    return {"id": number, "number": number, "updated_at": updated_at}


def link(path: str) -> dict[str, str]:
    """The header of a page that is followed by another."""
    return {"Link": f'<{API}{path}>; rel="next", <{API}/x?page=9>; rel="last"'}
