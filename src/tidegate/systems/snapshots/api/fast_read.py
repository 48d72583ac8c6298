"""Raw handler of snapshot reads; see `tidegate.http.raw_handlers`.

A snapshot in the memory of this process is returned at once: without a task, if the same address and the same headers
were answered before. Otherwise, and if the caller waits for a refresh
(`?wait=`), the request waits in `ReadCoalescer`: all requests for one subject share one task, which reads once for all
of them. When the read fails, the requests are passed on to the application, which reports each error. A request with a
body, or with a query other than `wait`, is passed to the application too.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.http.raw_handlers import (
    Admission,
    AdmittedRequest,
    Application,
    Receive,
    Responder,
    Scope,
    Send,
    connection_of,
)
from tidegate.runtime.change_feed import Watch
from tidegate.systems.snapshots.cache import CacheKey, RefreshFeed
from tidegate.systems.snapshots.reads import SnapshotAnswer, SnapshotReader

log = get_logger(__name__)

_SHORTEST_WAIT_S = 0.001

Read = Callable[[str, str], Awaitable[SnapshotAnswer]]
Waiting = asyncio.Future[SnapshotAnswer]


class ReadFailed(Exception):
    """The snapshot could not be read; the application reports why."""


class _Group:
    """The requests for one subject, each with its deadline on the monotonic clock."""

    def __init__(self) -> None:
        self.requests: dict[Waiting, float] = {}
        self.watch: Watch | None = None

    def respond(self, answer: SnapshotAnswer, *, to_all: bool) -> None:
        """Answer all requests, or only those after their deadline."""
        now = time.monotonic()
        for request, deadline in list(self.requests.items()):
            if (to_all or deadline <= now) and not request.done():
                request.set_result(answer)

    def until_deadline_s(self) -> float:
        """Seconds until the first deadline."""
        return max(_SHORTEST_WAIT_S, min(self.requests.values()) - time.monotonic())

    def remove(self, request: Waiting) -> None:
        """Remove an answered or cancelled request; without requests, waiting ends."""
        self.requests.pop(request, None)
        if not self.requests and self.watch is not None:
            self.watch.wake()


class ReadCoalescer:
    """All waiting requests of this process."""

    def __init__(self, read: Read, news: RefreshFeed) -> None:
        self._read, self._news = read, news
        self._groups: dict[CacheKey, _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False

    def __len__(self) -> int:
        return sum(len(group.requests) for group in self._groups.values())

    def join(self, place: CacheKey, *, deadline: float) -> Waiting:
        """Read a subject for a request, together with others that wait for it already.

        The answer comes at once unless a refresh is queued, and then when the refresh is done or at the `deadline`.
        Cancel the future when the client leaves; a read that other requests share goes on. Raises `ReadFailed`.
        """
        request: Waiting = asyncio.get_running_loop().create_future()
        group = self._groups.get(place)
        if group is None:
            group = self._groups[place] = _Group()
            task = asyncio.create_task(self._serve(place, group), name=f"read {place[0]}/{place[1]}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        # The running task sleeps until the deadlines it knows. Woken up, it reads again and includes this request.
        elif group.watch is not None:
            group.watch.wake()
        group.requests[request] = deadline
        request.add_done_callback(group.remove)
        return request

    def close(self) -> None:
        """Answer all waiting requests with the current state."""
        self._is_closing = True
        for group in self._groups.values():
            if group.watch is not None:
                group.watch.wake()

    async def _serve(self, place: CacheKey, group: _Group) -> None:
        try:
            # Subscribe before the first read: a refresh that is announced between read and wait is not missed.
            async with self._news.watch([f"{place[0]}/{place[1]}"]) as group.watch:
                while group.requests:
                    answer = await self._read(*place)
                    group.respond(answer, to_all=answer.is_settled or self._is_closing)
                    group.requests = {request: due for request, due in group.requests.items() if not request.done()}
                    if group.requests:
                        await group.watch.wait(group.until_deadline_s())
                self._remove(place, group)  # before the next await, so that a new request starts a new group
        except Exception as error:  # any error: the application reports it to each request
            log.debug("http.diverted", subject=f"{place[0]}/{place[1]}", error=str(error) or type(error).__name__)
            self._remove(place, group)
            for request in list(group.requests):
                if not request.done():
                    request.set_exception(ReadFailed())

    def _remove(self, place: CacheKey, group: _Group) -> None:
        # After `_remove`, a new request may have started another group for the same subject.
        if self._groups.get(place) is group:
            del self._groups[place]


PREFIX = "/v1/snapshots/"
ROUTE = "/v1/snapshots/{kind}/{key}"
_RESERVED = frozenset({"dead", "prefetch", "overview"})
_MOST_REMEMBERED, _LONGEST_REMEMBERED = 10_000, 512
_WAIT = re.compile(rb"wait=([1-9][0-9]?(?:\.[0-9]{1,3})?)")
_HEADERS = b"etag: %b\r\ncache-control: no-cache\r\n"
_HEADERS_OF_JSON = _HEADERS + b"content-type: application/json\r\n"


class ClientLeft(Exception):
    """The client closed the connection while its request waited."""


class SnapshotCall(NamedTuple):
    """A read that the raw handler can answer."""

    place: CacheKey
    wait_s: float
    """How long the caller waits for a refresh."""
    admitted: AdmittedRequest


class FastRead:
    """The raw handler of reads."""

    def __init__(
        self,
        application: Application,
        reader: SnapshotReader,
        admission: Admission,
        coalescer: ReadCoalescer,
        *,
        longest_wait_s: float,
    ) -> None:
        self._application, self._reader, self._admission = application, reader, admission
        self._coalescer, self._longest_wait_s = coalescer, longest_wait_s
        self._addresses = dict[bytes, CacheKey]()
        """Subjects by the address, without a query, of requests that were answered here."""
        self._respond = Responder()
        self._counts = {status: metrics.HTTP_REQUESTS.labels(ROUTE, "GET", str(status)) for status in (200, 304)}
        self._seconds = metrics.HTTP_REQUEST_SECONDS.labels(ROUTE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a read, or pass the request on to the application."""
        began = time.monotonic()
        call = self.read(scope)
        answer = None if call is None else self._reader.held(*call.place)
        if call is not None and (answer is None or (call.wait_s and not answer.is_settled)):
            try:
                answer = await self._wait(call, began, scope)
            except ClientLeft:
                return
        # Everything that the raw handler does not support, and every error, is answered by the application.
        if call is None or answer is None:
            await self._application(scope, receive, send)
            return
        if not scope["query_string"]:
            self._remember(scope["raw_path"], call.place)
        status, pieces = self._compose(answer, call.admitted, began)
        await self._respond.send(scope, send, status, *pieces)

    def answer_at_once(self, address: bytes, scope: Scope) -> Sequence[bytes] | None:
        """Answer a read of a subject in the memory of this process; see `AnswerAtOnce`."""
        began = time.monotonic()
        place = self._addresses.get(address)
        admitted = None if place is None else self._admission.cached(scope)
        if place is None or admitted is None or admitted.has_body:
            return None
        answer = self._reader.held(*place)
        return None if answer is None else self._compose(answer, admitted, began)[1]

    def _compose(self, answer: SnapshotAnswer, admitted: AdmittedRequest, began: float) -> tuple[int, Sequence[bytes]]:
        """The status, and head and body as they are sent."""
        known, tag = admitted.headers.get(b"if-none-match"), answer.tag.encode()
        # Exact comparison of weak tags. A header in another form costs a full answer and is never wrong.
        is_known = known is not None and (known == tag or tag in known.split(b", "))
        status, headers = (304, _HEADERS) if is_known else (200, _HEADERS_OF_JSON)
        body = () if is_known else (answer.kept.head, answer.tail)
        head = self._respond.head(status, headers % tag, sum(map(len, body)), is_secure=admitted.is_secure)
        self._counts[status].inc()
        self._seconds.observe(time.monotonic() - began)
        return status, (head, *body)

    def read(self, scope: Scope) -> SnapshotCall | None:
        """The requested snapshot; None if the application has to answer."""
        if scope["method"] != "GET":
            return None
        place, query = self._place(scope["path"]), scope["query_string"]
        admitted = None if place is None else self._admission(scope)
        if place is None or admitted is None or admitted.has_body:
            return None
        if not query:
            return SnapshotCall(place, 0.0, admitted)
        wait = _WAIT.fullmatch(query)
        return None if wait is None else SnapshotCall(place, min(float(wait[1]), self._longest_wait_s), admitted)

    def _place(self, path: str) -> CacheKey | None:
        """The kind and key of a path; None if the application has to answer."""
        kind, _, key = path[len(PREFIX) :].partition("/")
        if not key or "/" in key or kind in _RESERVED or kind not in self._reader.kinds:
            return None
        return kind, key

    def _remember(self, address: bytes, place: CacheKey) -> None:
        if len(address) <= _LONGEST_REMEMBERED:
            # Clearing everything is cheaper than an order of use: an entry is rebuilt by one request.
            if len(self._addresses) >= _MOST_REMEMBERED:
                self._addresses.clear()
            self._addresses[address] = place

    async def _wait(self, call: SnapshotCall, began: float, scope: Scope) -> SnapshotAnswer | None:
        """The answer after a read from the server, or after a refresh; None if the read failed.

        Raises `ClientLeft`.
        """
        # The deadline counts from the arrival of the request, so that admission and parsing are part of the wait.
        waiting = self._coalescer.join(call.place, deadline=began + call.wait_s)
        connection = connection_of(scope)
        if connection is not None:
            connection.cancel_when_lost(waiting)
        try:
            return await waiting
        except ReadFailed:
            return None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # Two causes end in this exception. The connection cancels only the future; the shutdown of the server
            # cancels this task, and that must be passed on.
            if not waiting.cancelled() or (task is not None and task.cancelling()):
                raise
            raise ClientLeft from None
