"""A small upstream of shelves with items, page by page, and the source that collects it."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

from tidegate.core.clock import monotonic_ms
from tidegate.engine.source import Cursor, JobSpec, Reading, Subject, Task, Verdict
from tidegate.engine.upstream import Answer, ConnectionBroken, Permit, Request
from tidegate.primitives.gate import Allowance
from tidegate.storage.documents import Document, Listing

LIMIT = 1_000_000
HOST = "http://shelves.test"


class ShelfUpstream:
    """Answers at once, counts every call, and misbehaves on demand: `trouble[path]` is a list of what happens first."""

    def __init__(self, shelves: dict[str, int], per_page: int = 2) -> None:
        self.shelves, self.per_page = shelves, per_page
        self.calls: Counter[str] = Counter()
        self.trouble: defaultdict[str, list[int | Exception]] = defaultdict(list)
        self.before_answer: Callable[[str], asyncio.Future[None] | None] = lambda _: None
        self.callers: defaultdict[str, list[str]] = defaultdict(list)
        """Whose secret came with the calls of a path."""
        self.moved: dict[str, str] = {}
        """Paths, or addresses of other hosts, that are redirected, and where to."""
        self.sent_ms: list[float] = []
        """When each call left."""

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        path = request.url.removeprefix(HOST)
        if permit is not None:
            permit.use()
        self.calls[path] += 1
        self.sent_ms.append(monotonic_ms())
        self.callers[path].append(request.headers.get("Authorization", ""))
        if (target := self.moved.get(path)) is not None:
            return self._answer(request, 301, {"message": "moved"}, Location=target)
        if (held := self.before_answer(path)) is not None:
            await held
        trouble = self.trouble[path].pop(0) if self.trouble[path] else 200
        if isinstance(trouble, Exception):
            raise trouble
        body = self._body(path) if trouble == 200 else {"message": f"status {trouble}"}
        return self._answer(request, trouble, body)

    def _answer(self, request: Request, status: int, body: Mapping[str, object], **headers: str) -> Answer:
        told = CIMultiDict({"x-remaining": str(LIMIT - self.calls.total()), **headers})
        return Answer(
            status=status,
            headers=CIMultiDictProxy(told),
            url=request.url,
            received_at=datetime.now(UTC),
            body=msgspec.json.encode(body),
            elapsed_ms=0.0,
        )

    def _body(self, path: str) -> dict[str, object]:
        _, kind, name, *rest = path[path.index("/", len("http://")) if "://" in path else 0 :].split("/")
        if kind == "users":
            return {"shelves": [shelf for shelf in self.shelves if shelf.startswith(name)]}
        page = int(rest[0].partition("?")[0])
        first, count = page * self.per_page, self.shelves[name]
        items = [{"id": f"{name}-{n}", "n": n} for n in range(first, min(first + self.per_page, count))]
        return {"items": items, "more": first + self.per_page < count}


class ShelfSource:
    """USER finds shelves, SHELF reads one of them, page after page."""

    name = "shelves"
    planning_kinds = frozenset({"USER"})

    def __init__(self, rest_ms: int = 50) -> None:
        self.tasks: list[Task] = []
        """Those whose answers were read."""
        self.rest_ms = rest_ms
        """For how long a credential has to rest after a refusal."""

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        return [JobSpec(kind="USER", resource=f"user:{subject.login}", params={"path": f"/users/{subject.login}"})]

    def request(self, task: Task, secret: str) -> Request:
        return Request(
            url=HOST + task.spec.params["path"], purpose=task.spec.kind, headers={"Authorization": f"token {secret}"}
        )

    def read(self, task: Task, answer: Answer) -> Reading:
        said = Allowance(
            limit=LIMIT, remaining=int(answer.headers["x-remaining"]), window=4_000_000_000, resets_in_ms=3_600_000
        )
        self.tasks.append(task)
        match answer.status:
            case 304:
                return Reading(unchanged=True, allowance=said)
            case 200:
                return self._read_body(task, msgspec.json.decode(answer.body), said)
            case 401:
                return Reading(verdict=Verdict.UNAUTHORIZED, reason="bad token", allowance=said)
            case 404:
                return Reading(
                    verdict=Verdict.GONE, reason="no such shelf", cursor=Cursor(cursor="was not there"), allowance=said
                )
            case 301:
                return Reading(verdict=Verdict.MOVED, reason="moved", allowance=said)
            case 429:
                return Reading(verdict=Verdict.LATER, reason="slow down", allowance=said, blocked_ms=self.rest_ms)
            case status:
                return Reading(verdict=Verdict.RETRY, reason=f"status {status}", allowance=said, delay_ms=1)

    def _read_body(self, task: Task, body: dict[str, list[dict[str, str]]], said: Allowance) -> Reading:
        if task.spec.kind == "USER":
            shelves = [_shelf_page(str(shelf), 0) for shelf in body["shelves"]]
            return Reading(follow_ups=shelves, allowance=said)
        resource, page = task.spec.resource, task.spec.params["page"]
        documents = [
            Document.of("item", item["id"], owner=task.user_id, resource=resource, body=item, sweep=task.run_id)
            for item in body["items"]
        ]
        if body["more"]:
            follow_up = _shelf_page(resource.removeprefix("shelf:"), page + 1)
            return Reading(documents=documents, follow_ups=[follow_up], allowance=said)
        return Reading(
            documents=documents,
            completed=[Listing("item", resource, task.run_id)],
            cursor=Cursor(cursor=f"page {page}", etag='"an etag"', credential=task.credential),
            allowance=said,
        )


def _shelf_page(shelf: str, page: int) -> JobSpec:
    return JobSpec(
        kind="SHELF",
        resource=f"shelf:{shelf}",
        page=f"page {page}" if page else "first",
        params={"path": f"/shelves/{shelf}/{page}", "page": page},
    )


def broken() -> ConnectionBroken:
    return ConnectionBroken(Request(url=HOST, purpose="test"), "reset by peer", was_sent=None)
