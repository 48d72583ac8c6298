"""The HTTP server as a service: uvicorn with httptools in the process's event loop.

The process handles signals, and the server waits for the stop signal without polling.
"""

import asyncio
import logging
import select
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, cast

import httptools
import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidegate.core.ids import new_id
from tidegate.core.telemetry.logs import get_logger
from tidegate.http import asgi
from tidegate.http.asgi import MOST_KEPT, Application
from tidegate.http.binding import Binding
from tidegate.http.problems import MEDIA_TYPE, ProblemType, RequestFailed
from tidegate.http.raw_handlers import CONNECTION, AnswerAtOnce, prepare

log = get_logger(__name__)

_HEAD_WITHIN_S = 20.0
"""The head of a request has to arrive within this time."""
_KEEP_ALIVE_S = 20
"""Longer than common clients keep idle connections (aiohttp: 15 s), so that none sends a request while it is closed."""
_AGAIN_S = 1.0
"""Delay before an idle connection with unread data is checked again."""
_LINGER_S = 2.0
_MOST_LINGERED = 1024 * 1024
"""Limits, in seconds and in bytes, for data that a client sends after the last answer of a connection."""
_DRAIN_WITHIN_S = 20
"""Shorter than the supervisor's limit, so that services that stop later have time left."""


# Malformed requests are answered and not logged; otherwise clients could flood the log.
_errors = logging.getLogger("uvicorn.error.tidegate")
_errors.setLevel(logging.ERROR)


class HttpService:
    """Answers requests until it is stopped; then accepts no new ones and finishes those in progress."""

    def __init__(self, application: Application, binding: Binding, *, on_stop: Callable[[], None]) -> None:
        """`on_stop` ends answers that stay open, such as event streams."""
        self._application, self._binding, self._on_stop = application, binding, on_stop

    async def run(self, stopping: asyncio.Event) -> None:
        """Answer requests until `stopping` is set, then finish those in progress: see `Service`."""
        config = uvicorn.Config(
            self._application,  # pyright: ignore[reportArgumentType]
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_DRAIN_WITHIN_S,
        )
        log.info("http.listening", address=self._binding.address)
        await _Server(config, stopping, self._on_stop).serve(self._binding.sockets())


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._stopping, self._on_stop = stopping, on_stop

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to the process."""
        yield

    async def main_loop(self) -> None:
        """Wait for the stop signal; the original polls ten times a second."""
        await self._stopping.wait()
        self._on_stop()


class _Protocol(HttpToolsProtocol):
    """Limits how large and how slow the head of a request may be, and offers `Connection`.

    A connection with unread data is not closed, because the kernel would reset it. An idle connection stays open for a
    request that has just arrived; after the last answer, further data is read and ignored for a short time.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.app_state = {**app_state, CONNECTION: self}  # copied into the scope of each request
        self._answer_at_once: AnswerAtOnce | None = getattr(self.app, "answer_at_once", None)
        self._idle_since: float | None = None
        """When the last answer of the connection was complete; None while a request arrives or is answered."""
        self._on_writable: Callable[[], None] | None = None
        self._waiting: Any = None
        self._running: Any = None  # the request that is being answered; `cycle` is the latest one of the connection
        self._is_stopping = False
        self._head_size = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._lingered: int | None = None
        """The bytes that arrived since the last answer of the connection, which are ignored."""
        self.logger = _errors

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A client connected; its first request has to arrive in time."""
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, and limit how large and how slow a head may be."""
        if self._lingered is not None:
            # Reading on lets the client receive the last answer. A close with unread data would reset the connection
            # and discard it.
            self._lingered += len(data)
            if self._lingered > _MOST_LINGERED:
                self.transport.close()
            return
        self._unset_keepalive_if_required()
        # The parser may complete several requests, or none, with these bytes. The latest cycle shows
        # where the next head begins.
        before: Any = self.cycle
        if not self._has_parsed(data):
            return
        cycle: Any = self.cycle  # None before the first request
        # The latest head is complete, and no further one has begun.
        if cycle is not None and cycle.scope is self.scope and not (cycle.response_complete and cycle.more_body):
            self._head_size = 0
            self._stop_head_timer()
        elif self._is_stopping:
            self.transport.close()
        elif not self.transport.is_closing():
            self._await_head(len(data) if cycle is before else 0)  # what follows a complete head has an unknown size

    def _has_parsed(self, data: bytes) -> bool:
        """Parse requests. A request to upgrade the protocol is answered like any other, and so are later requests."""
        parser: Any = self.parser
        while data:
            try:
                parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # The parser stops at an upgrade request. The rest is the next request, because no upgrade is supported.
                data = data[upgrade.args[0] :]
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
                return False
            else:
                return True
        return True

    def _await_head(self, arrived: int) -> None:
        """The head is incomplete, or the client still sends the body of a request that is answered."""
        if self._head_timer is None:
            self._start_head_timer()
        cycle: Any = self.cycle
        if cycle is not None and cycle.scope is self.scope:
            return
        self._head_size += arrived
        if self._head_size > MOST_KEPT:
            detail = f"the limit is {MOST_KEPT:,} bytes"
            self._refuse(RequestFailed(ProblemType.HEAD_TOO_LARGE, detail))

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(_HEAD_WITHIN_S, self._end_head)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_head(self) -> None:
        """Close the connection: the head was not received in time."""
        # The event loop was late: the first bytes have arrived and are read next.
        if not self._has_begun and not self._head_size and self._has_unread():
            self._head_timer = self.loop.call_later(_AGAIN_S, self._end_head)
        else:
            self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection after the keep-alive timeout."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return  # the next answer starts the timer again
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_s <= 0 and not self._has_unread():
            super().timeout_keep_alive_handler()
        else:
            self._start_keep_alive_timer(left_s if left_s > 0 else _AGAIN_S)

    def _start_keep_alive_timer(self, delay_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(delay_s, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        # The timer keeps running and finds out when it expires how long the connection has been idle: starting and
        # cancelling a timer per request costs more than the rest of the bookkeeping.
        self._idle_since = None

    def shutdown(self) -> None:
        """The server stops: close an idle connection; otherwise, close it after the request in progress."""
        is_idle = not self._has_begun or self.cycle.response_complete
        if is_idle and self._has_unread():
            self._is_stopping = True
        else:
            super().shutdown()

    def on_headers_complete(self) -> None:
        """Start to answer a request; while the server stops, it is the last of its connection."""
        if self._has_answered_at_once():
            return
        super().on_headers_complete()
        cycle: Any = self.cycle
        # uvicorn closes the transport of a request directly. This wrapper lets the protocol linger first.
        cycle.transport = _Closing(self, cycle)
        if self._is_stopping:
            self.cycle.keep_alive = False

    def _has_answered_at_once(self) -> bool:
        """Answer a request without a task, if the application can and all earlier requests are answered."""
        cycle: Any = self.cycle  # None before the first request
        if self._answer_at_once is None or (cycle is not None and not cycle.response_complete):
            return False
        parser: Any = self.parser
        is_plain = parser.get_method() == b"GET" and parser.get_http_version() == "1.1" and not parser.should_upgrade()
        # Otherwise flow control and the closing header are left to uvicorn.
        stays_open = parser.should_keep_alive() and not self._is_stopping and not self.transport.is_closing()
        if not is_plain or not stays_open or self.flow.write_paused:
            return False
        scope: Any = self.scope
        scope["method"] = "GET"
        pieces = self._answer_at_once(self.url, scope)
        if pieces is None:
            return False
        self.transport.writelines(pieces)  # without copying
        self.cycle = cast("Any", _AnsweredCycle(scope))
        self.on_response_complete()
        return True

    def end(self, *, is_answered: bool) -> None:
        """Close the connection; after an answer, as soon as the client has sent the rest of its requests."""
        if is_answered and (self.cycle.more_body or self._has_unread()):
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Close the writing side, and ignore received data until the client closes the connection."""
        if not self.transport.can_write_eof():
            self.transport.close()
        elif self._lingered is None and not self.transport.is_closing():
            self._lingered = 0
            self._stop_head_timer()
            self._unset_keepalive_if_required()
            self.pipeline.clear()
            # Order matters: the answer is sent completely, then the writing side is closed, then the
            # rest is read and ignored.
            self.transport.write_eof()
            self.flow.resume_reading()
            self._head_timer = self.loop.call_later(_LINGER_S, self.transport.close)

    def on_response_complete(self) -> None:
        """Start the next request, or wait for it; there is none after the last answer."""
        if self._lingered is not None:
            return
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._start_keep_alive_timer(self.timeout_keep_alive)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running, self._idle_since = cycle, None
        super()._start_asgi_task(cycle, app)

    @property
    def _has_begun(self) -> bool:
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None

    def _has_unread(self) -> bool:
        connection = self.transport.get_extra_info("socket")
        if connection is None or connection.fileno() < 0:
            return False
        poll = select.poll()
        # `poll` with timeout 0 asks the kernel and does not block. `select` could not handle file numbers above 1023.
        poll.register(connection.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    @property
    def is_backlogged(self) -> bool:
        """See `Connection`."""
        return self.flow.write_paused or self.transport.is_closing()

    def begin(self, on_writable: Callable[[], None]) -> None:
        """See `Connection`."""
        self._on_writable = on_writable
        self.cycle.on_response = self._end_stream
        prepare(self.transport)

    def write(self, body: bytes) -> None:
        """See `Connection`."""
        self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))

    def abort(self) -> None:
        """See `Connection`."""
        self.transport.abort()

    def respond(self, scope: Mapping[str, Any], *pieces: bytes) -> bool:
        """See `Connection`."""
        cycle = self.cycle
        # Only for the latest request of a connection that stays open. Otherwise, the order of pipelined answers and the
        # closing header are left to uvicorn.
        if cycle.scope is not scope or not cycle.keep_alive or cycle.disconnected or self.flow.write_paused:
            return False
        self.transport.writelines(pieces)  # without copying
        # Leave the cycle as if the answer had been sent as messages.
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        cycle.on_response()
        return True

    def cancel_when_lost(self, task: Any) -> None:
        """See `Connection`."""
        self._waiting = task
        self.cycle.on_response = self._end_stream

    def resume_writing(self) -> None:
        """Continue writing: the buffer has been sent."""
        super().resume_writing()
        if self._on_writable is not None:
            self._on_writable()

    def _end_stream(self) -> None:
        """Remove the callbacks of a complete answer, so that the next one of the connection starts without them."""
        self._on_writable = self._waiting = None
        self.on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has closed the connection."""
        self._stop_head_timer()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self._on_writable = None
        super().connection_lost(exc)
        # uvicorn tells only the latest request of the connection; an earlier one that is still
        # answered must end as well.
        running, self._running = self._running, None
        if running is not None and not running.response_complete:  # differs from `cycle` if requests are pipelined
            running.disconnected = True
            running.message_event.set()
        self.app_state = {}  # breaks a reference cycle

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP with a problem."""
        self._refuse(RequestFailed(ProblemType.BAD_REQUEST, msg))

    def _refuse(self, failure: RequestFailed) -> None:
        """Send a problem and close the connection, unless an answer is in progress."""
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            request_id = new_id()
            body = msgspec.json.encode(failure.problem(request_id))
            headers = [
                (b"content-type", MEDIA_TYPE.encode()),
                (b"content-length", b"%d" % len(body)),
                (b"x-request-id", request_id.encode()),
                (b"connection", b"close"),
                *asgi.ALWAYS,
            ]
            phrase = HTTPStatus(failure.status).phrase.encode()
            lines = b"".join(b"%b: %b\r\n" % pair for pair in headers)
            self.transport.write(b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (failure.status, phrase, lines, body))
            self._linger()
        else:
            self.transport.close()


class _AnsweredCycle:
    """The cycle of a request that was answered at once; it has no task."""

    __slots__ = ("scope",)
    response_complete, more_body, keep_alive = True, False, True
    message_event = asyncio.Event()  # for no task

    def __init__(self, scope: Any) -> None:
        self.scope = scope


class _Closing:
    """The transport of one request, which closes the connection through its protocol."""

    def __init__(self, protocol: _Protocol, cycle: Any) -> None:
        self._protocol, self._cycle, self._transport = protocol, cycle, protocol.transport
        self.write = protocol.transport.write

    def close(self) -> None:
        self._protocol.end(is_answered=self._cycle.response_complete)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
