"""Tools for raw ASGI handlers, which answer the most frequent requests without the framework.

A raw handler is mounted on a path prefix and gets the application. It answers plain requests of admitted callers, and
passes all others to the application, which implements all rules and problems. Both must give the same answer; a test of
each handler compares them.

ASGI passes an answer to the server in messages. Two kinds of answers are written to the connection directly: answers of
raw handlers with a precomposed head, and small events for thousands of clients without a task per client. The server of
this package offers the connection in the state of each request. Other servers do not; answers are then sent as
messages.
"""

import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Protocol

from tidegate.core.ids import new_id
from tidegate.http import asgi
from tidegate.http.asgi import Application, Message, Pair, Receive, Scope, Send, check_head, headers_of, is_for_head
from tidegate.http.authentication import Authenticator
from tidegate.http.callers import Role
from tidegate.http.problems import RequestFailed

CONNECTION = "tidegate.connection"
_MOST_UNSENT = 16 * 1024
_SILENT_MS = 60_000
"""The kernel closes a connection if the client has acknowledged nothing for this long."""


class Connection(Protocol):
    """The connection of one request."""

    @property
    def is_backlogged(self) -> bool:
        """Whether the client reads more slowly than events are written."""
        ...

    def begin(self, on_writable: Callable[[], None]) -> None:
        """Limit what is buffered for a slow client; `on_writable` is called when the buffer has been sent."""
        ...

    def write(self, body: bytes) -> None:
        """Send a chunk of an answer with chunked transfer encoding."""
        ...

    def abort(self) -> None:
        """Close the connection at once."""
        ...

    def respond(self, scope: Mapping[str, Any], *pieces: bytes) -> bool:
        """Send a whole answer, head and body.

        Returns False and sends nothing if the answer has to be sent as messages: an earlier request of the connection
        is unanswered, the connection must be closed after the answer, or the client is slow.
        """
        ...

    def cancel_when_lost(self, task: Any) -> None:
        """Cancel a task or future when the client closes the connection while it waits for this answer."""
        ...


def connection_of(scope: Scope) -> Connection | None:
    """The connection of a request; None if the server does not offer it."""
    state = scope.get("state")
    return None if state is None else state.get(CONNECTION)


def stream_of(scope: Scope) -> Connection | None:
    """The connection of a request, for a chunked answer; None if events have to be sent as messages."""
    # HTTP/1.0 has no chunked encoding.
    is_chunked = scope["http_version"] == "1.1" and scope["method"] == "GET" and not is_for_head(scope)
    return connection_of(scope) if is_chunked else None


def prepare(transport: Any) -> None:
    """Limit the write buffer for slow clients, and detect clients that disappeared without closing the connection."""
    transport.set_write_buffer_limits(high=_MOST_UNSENT)
    connection = transport.get_extra_info("socket")
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_MS)


AnswerAtOnce = Callable[[bytes, Scope], Sequence[bytes] | None]
"""Answers a GET request of HTTP/1.1 by its address, without I/O: head and body as they are sent, or None.

The scope has a method, a client and headers, but no path. None: the ASGI application has to answer, for example because
the request has a body. A raw handler offers it as a method `answer_at_once`. The server of this package calls it if all
earlier requests of the connection are answered and the client is not slow. The answer then needs no task, cycle or
timer of its own.
"""
RawHandler = Callable[[Application], Application]
"""Makes the ASGI application of a prefix. The argument answers the requests that the handler passes on."""

_JSON = (b"application/json", b"application/json; charset=utf-8")
_MOST_REMEMBERED = 2_000
_LONGEST_REMEMBERED = 2 * 1024
"""Bytes of headers; those of browsers are shorter. So at most 4 MB are remembered."""
_STATUS_LINES = {each.value: b"HTTP/1.1 %d %b\r\n" % (each, each.phrase.encode()) for each in HTTPStatus}


def received_first(message: Message, receive: Receive) -> Receive:
    """A `receive` that returns an already received message first."""
    messages = [message]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again


def has_small_json(headers: Mapping[bytes, bytes], largest: int) -> bool:
    """Whether a request has a JSON body of at most `largest` bytes that is sent without a prior response.

    Small bodies of known length usually arrive in one message; raw handlers pass all others on.
    """
    length = headers.get(b"content-length", b"")
    is_small = length.isdigit() and int(length) <= largest
    is_json = headers.get(b"content-type", b"").lower() in _JSON
    return is_small and is_json and b"expect" not in headers and b"content-encoding" not in headers


class AdmittedRequest:
    """What the headers of an admitted request say."""

    __slots__ = ("has_body", "headers", "is_secure")

    def __init__(self, headers: Mapping[bytes, bytes]) -> None:
        self.headers = headers
        self.is_secure = headers.get(b"x-forwarded-proto", b"").lower() == b"https"
        """Whether the client uses TLS; a proxy reports it."""
        self.has_body = b"content-length" in headers or b"transfer-encoding" in headers


class Admission:
    """Decides without I/O whether a request is admitted, and caches the decision for requests with the same headers.

    Only decisions that cannot change while the process runs are cached: a key is valid, or none is needed.
    """

    def __init__(self, authenticator: Authenticator, role: Role | None, *, varying: Collection[bytes] = ()) -> None:
        """`varying` names headers that differ between requests and are irrelevant for admission. Without a `role`, the
        path needs no key; `authenticator` knows it as open."""
        self._authenticator, self._role, self._varying = authenticator, role, frozenset(varying)
        self._admitted = dict[Any, AdmittedRequest]()

    def __call__(self, scope: Scope) -> AdmittedRequest | None:
        """The headers of an admitted request, without the varying ones; None: the application has to decide."""
        known = self._key(scope)
        found = self._admitted.get(known)
        return self._decide(scope, known) if found is None else found

    def cached(self, scope: Scope) -> AdmittedRequest | None:
        """As `__call__`, if the decision is cached; the scope needs no path."""
        return self._admitted.get(self._key(scope))

    def _key(self, scope: Scope) -> Any:
        client, pairs = scope["client"], scope["headers"]
        if self._varying:
            pairs = [pair for pair in pairs if pair[0] not in self._varying]
        # The client's address is part of the key, because limits of wrong keys and rules for loopback depend on it.
        return scope["method"], None if client is None else client[0], tuple(pairs)

    def _decide(self, scope: Scope, known: Any) -> AdmittedRequest | None:
        headers = dict(known[2])
        try:
            # The same checks as in the application, in the same order.
            check_head(scope)
            caller = self._authenticator.admit_without_io(scope["method"], scope["path"], headers_of(scope), known[1])
            if self._role is not None:
                caller.require(self._role)
        except RequestFailed:
            return None
        if len(headers) != len(known[2]):
            return None  # a header occurs twice: the application decides which one counts
        found = AdmittedRequest(headers)
        if sum(len(name) + len(value) for name, value in headers.items()) <= _LONGEST_REMEMBERED:
            if len(self._admitted) >= _MOST_REMEMBERED:
                # Clearing everything is cheaper than an order of use: a decision costs little to repeat.
                self._admitted.clear()
            self._admitted[known] = found
        return found


class Responder:
    """Sends answers of raw handlers, with the headers that every answer has."""

    def __init__(self) -> None:
        self._second = 0
        self._common: dict[bool, bytes] = {}

    def head(self, status: int, headers: bytes, length: int, *, is_secure: bool) -> bytes:
        """The head of an answer; `headers` are added to length, date, request id and security headers."""
        now = int(time.time())
        # Date and security headers change once a second at most, so their encoded form is reused.
        if now != self._second:
            self._second, date = now, (b"date", formatdate(now, usegmt=True).encode())
            for secure in (False, True):
                self._common[secure] = lines_of([date, *asgi.of_data(is_secure=secure)]) + b"x-request-id: "
        # A 304 has no body, and its length would be that of the full answer.
        line = _STATUS_LINES[status] if status == 304 else b"%bcontent-length: %d\r\n" % (_STATUS_LINES[status], length)
        return b"%b%b%b%b\r\n\r\n" % (line, headers, self._common[is_secure], new_id().encode())

    async def __call__(
        self, scope: Scope, send: Send, status: int, headers: bytes, *body: bytes, is_secure: bool
    ) -> None:
        """Send an answer: write it to the connection if possible, otherwise send it as ASGI messages."""
        head = self.head(status, headers, sum(map(len, body)), is_secure=is_secure)
        await self.send(scope, send, status, head, *body)

    async def send(self, scope: Scope, send: Send, status: int, head: bytes, *body: bytes) -> None:
        """Send an answer with a head that `head` has composed."""
        connection = connection_of(scope)
        if connection is None or not connection.respond(scope, head, *body):
            # Another server, or an answer that must wait for its turn: send the same headers as ASGI messages.
            pairs = [tuple(line.split(b": ", 1)) for line in head.split(b"\r\n")[1:-2]]
            await send({"type": "http.response.start", "status": status, "headers": pairs})
            await send({"type": "http.response.body", "body": b"".join(body)})


def lines_of(headers: Iterable[Pair]) -> bytes:
    """Headers in the form in which they are sent."""
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])
