"""HTTP as a service among the others: without signal handlers of its own, awake only when asked, drained when told."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import h11
import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidegate.core.ids import new_id
from tidegate.core.telemetry.logs import get_logger
from tidegate.http import security_headers
from tidegate.http.binding import Binding
from tidegate.http.fast_path import FastHandler, Pending, Response
from tidegate.http.header_limits import MOST_KEPT
from tidegate.http.problems import MEDIA_TYPE, ProblemType, Trouble
from tidegate.http.wire import EXTENSION, prepare

log = get_logger(__name__)

_MOST_LATER = 64 * 1024
"""Bytes of requests that may come while an earlier one of the connection waits."""
_HEAD_WITHIN_S = 20.0
"""Whoever connects has so long to say what he wants, however busily he says nothing."""
_DRAIN_WITHIN_S = 20
"""Less than the supervisor grants, so that those behind us have their time too."""


class HttpService:
    """Answers until told to stop; then takes no new calls, and finishes those that are under way."""

    def __init__(
        self,
        application: ASGIApp,
        binding: Binding,
        *,
        on_stop: Callable[[], None],
        fast_handlers: Sequence[FastHandler] = (),
    ) -> None:
        """`on_stop` ends what would last for ever, such as streams of events; `fast_handlers` are asked before the
        application."""
        self._application, self._binding, self._on_stop = application, binding, on_stop
        self._protocol = type("_OurProtocol", (_Protocol,), {"fast_handlers": tuple(fast_handlers)})

    async def run(self, stopping: asyncio.Event) -> None:
        """See `Service`."""
        config = uvicorn.Config(
            self._application,
            http=self._protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_DRAIN_WITHIN_S,
            h11_max_incomplete_event_size=MOST_KEPT,
        )
        log.info("http.listening", address=self._binding.address)
        await _Server(config, stopping, self._on_stop).serve(self._binding.sockets())


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._stopping, self._on_stop = stopping, on_stop

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals belong to the program."""
        yield

    async def main_loop(self) -> None:
        """Wait, where the original looks ten times a second."""
        await self._stopping.wait()
        self._on_stop()


class _Protocol(H11Protocol):
    fast_handlers: tuple[FastHandler, ...] = ()
    _exchange: "_Exchange | None" = None
    _on_writable: Callable[[], None] | None = None
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Somebody connected, and is expected to say why."""
        super().connection_made(transport)
        self._lose_patience_later()

    def handle_events(self) -> None:
        """Offer the short way with each request; see `wire`."""
        super().handle_events()
        cycle: Any = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            cycle.scope.setdefault("extensions", {})[EXTENSION] = self

    @property
    def is_clogged(self) -> bool:
        """See `Wire`."""
        return self.flow.write_paused or self.transport.is_closing()

    def begin(self, on_writable: Callable[[], None]) -> None:
        """See `Wire`."""
        self._on_writable = on_writable
        prepare(self.transport)

    def write(self, body: bytes) -> None:
        """See `Wire`."""
        self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))

    def abort(self) -> None:
        """See `Wire`."""
        self.transport.abort()

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        if self._on_writable is not None:
            self._on_writable()

    def on_response_complete(self) -> None:
        """The next request on this connection is another matter."""
        self._on_writable = None
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        """Answer at once, or soon, what can be, between two requests that cannot."""
        if not self._is_taken_the_short_way(data):
            super().data_received(data)
            self._be_patient()

    @property
    def _peer(self) -> str | None:
        return None if self.client is None else self.client[0]

    def _is_taken_the_short_way(self, data: bytes) -> bool:
        if self._exchange is not None:
            self._exchange.later += data
            if len(self._exchange.later) > _MOST_LATER:
                self.transport.abort()
            return True
        if not self.fast_handlers or not self._is_between_requests():
            return False
        for handler in self.fast_handlers:
            call = handler.read(data, self._peer)
            if call is not None:
                self._regain_patience()
                self._take(handler, call, data)
                return True
        return False

    def _be_patient(self) -> None:
        """As long as we have something to do for him; where he has to say more, only so long."""
        if self.conn.our_state not in (h11.IDLE, h11.DONE):
            self._regain_patience()
        elif self._patience is None:
            self._lose_patience_later()

    def _lose_patience_later(self) -> None:
        self._patience = self.loop.call_later(_HEAD_WITHIN_S, self.transport.close)

    def _regain_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _take(self, handler: FastHandler, call: Any, data: bytes) -> None:
        answer = handler.answer(call)
        if answer is not None:
            self.respond(answer)
            return
        self._unset_keepalive_if_required()
        exchange = self._exchange = _Exchange(self, data)
        exchange.pending = handler.wait(call, exchange)

    def respond(self, response: Response) -> None:
        """Send it; what came meanwhile is next."""
        self.transport.writelines(response)
        exchange, self._exchange = self._exchange, None
        self.on_response_complete()
        if exchange is not None and exchange.is_last:
            super().shutdown()
        elif exchange is not None and exchange.later:
            self.data_received(exchange.later)

    def take_the_long_way(self, exchange: "_Exchange") -> None:
        """Begin anew with a request that could not be answered on the short one."""
        self._exchange = None
        super().data_received(exchange.data + exchange.later)
        if exchange.is_last:
            super().shutdown()

    def shutdown(self) -> None:
        """Who waits is answered first."""
        if self._exchange is not None:
            self._exchange.is_last = True
        else:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Who has gone waits no more."""
        self._regain_patience()
        if self._exchange is not None and self._exchange.pending is not None:
            self._exchange.pending.leave()
        self._exchange = None
        super().connection_lost(exc)

    def _is_between_requests(self) -> bool:
        """Whether nothing is under way on this connection, in either direction."""
        return (
            self.conn.our_state is h11.IDLE
            and self.conn.their_state is h11.IDLE
            and not self.conn.trailing_data[0]
            and not self.flow.write_paused
        )

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is told as a problem too."""
        request_id = new_id()
        body = msgspec.json.encode(Trouble(ProblemType.BAD_REQUEST, msg).told(request_id))
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", request_id.encode()),
            (b"connection", b"close"),
            *security_headers.ALWAYS,
        ]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class _Exchange:
    """A request that a fast handler answers later; see `fast_path.Exchange`."""

    def __init__(self, protocol: _Protocol, data: bytes) -> None:
        self._protocol, self.data = protocol, data
        self.pending: Pending | None = None
        self.later = b""
        """What came behind the request."""
        self.is_last = False
        """The connection is to be closed when it is answered."""

    def respond(self, response: Response) -> None:
        """Send the answer."""
        self._protocol.respond(response)

    def decline(self) -> None:
        """Pass the request on to the application."""
        self._protocol.take_the_long_way(self)
