"""One connection: requests in, replies out, one at a time and in order, however slowly the other side reads."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Protocol, cast

from tidegate_simulators.wire.messages import (
    LARGEST_BODY,
    LARGEST_HEAD,
    BadRequest,
    Reply,
    Request,
    Spoiling,
    error,
    head_of,
    read_request,
)

_DROPS = 20
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
_MOST_UNREAD = LARGEST_HEAD + LARGEST_BODY
"""Bytes of requests that wait for their turn; beyond that nothing more is read."""


class Pace(Protocol):
    """How long things take that go wrong."""

    @property
    def hang_s(self) -> float:
        """How long a call that times out is held before the connection is closed."""
        ...

    @property
    def drip_s(self) -> float:
        """How long a slow body takes."""
        ...

    @property
    def idle_s(self) -> float:
        """A connection on which nothing moves for so long is closed."""
        ...


class Account(Protocol):
    """Where it is booked what was sent."""

    bytes_sent: int


class Host(Protocol):
    """Whom a connection asks for replies."""

    name: bytes
    """What it calls itself in the header Server."""
    connections: "set[Connection]"

    @property
    def manners(self) -> Pace:
        """How slowly it is slow."""
        ...

    @property
    def ledger(self) -> Account:
        """Counts the bytes."""
        ...

    def receive(self, request: Request, body: bytes) -> Reply:
        """Decide on the answer to a request that arrives now."""
        ...


class Connection(asyncio.Protocol):
    """Speaks HTTP/1.1 with one client. A request that waits behind another arrives when its turn comes."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._buffer = b""
        self._timer: asyncio.TimerHandle | None = None
        """A reply is on its way, but not yet sent; nothing else is done meanwhile."""
        self._on_end: Callable[[], None] | None = None
        """Whom to tell when that reply is sent, or will not be."""
        self._patrol: asyncio.TimerHandle | None = None
        self._has_moved = True
        """Since somebody last looked."""
        self._unsent = 0
        self._is_full = self._is_over = self._has_ended = self._was_told_to_continue = self._is_reading_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._host.connections.add(self)
        self._patrol = self._loop.call_later(self._host.manners.idle_s, self._look_after)

    def connection_lost(self, exc: Exception | None) -> None:
        """End; a reply that was on its way is not sent."""
        del exc
        self._host.connections.discard(self)
        for handle in (self._timer, self._patrol):
            if handle is not None:
                handle.cancel()
        self._timer = self._patrol = None
        self._is_over = True
        self._tell_end()

    @property
    def is_reading(self) -> bool:
        """Whether it takes more requests; not, while too many wait."""
        return not self._is_reading_paused

    @property
    def waiting_bytes(self) -> int:
        """Of requests that wait for their turn."""
        return len(self._buffer)

    def abort(self) -> None:
        """End it at once."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what came, and answer what is complete."""
        if self._is_over:
            return
        self._has_moved = True
        self._buffer = self._buffer + data if self._buffer else data
        self._proceed()
        if len(self._buffer) > _MOST_UNREAD and not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """The client has nothing more to say; what it asked for is still sent."""
        self._has_ended = True
        self._tell_end()  # most who do that have gone, and will not see the answer
        if self._is_over:
            self._transport.close()
        else:
            self._close_if_done()
        return True

    def pause_writing(self) -> None:
        """The client reads more slowly than we send: no further reply until it has caught up."""
        self._is_full = True

    def resume_writing(self) -> None:
        """It has caught up."""
        self._is_full, self._has_moved = False, True
        self._proceed()

    def _look_after(self) -> None:
        """Close a connection on which nothing moved since the last look."""
        unsent = self._transport.get_write_buffer_size()
        if not self._has_moved and self._timer is None and unsent == self._unsent:
            self._transport.abort()
            return
        self._has_moved, self._unsent = False, unsent
        self._patrol = self._loop.call_later(self._host.manners.idle_s, self._look_after)

    def _proceed(self) -> None:
        while self._buffer and self._timer is None and not self._is_full and not self._is_over:
            try:
                if not self._take_one():
                    break
            except BadRequest as bad:
                self._refuse(bad)
        if self._is_reading_paused and len(self._buffer) <= _MOST_UNREAD and not self._is_over:
            self._is_reading_paused = False
            self._transport.resume_reading()
        if self._has_ended:
            self._close_if_done()

    def _take_one(self) -> bool:
        """Answer the first request in the buffer; False: it is not complete."""
        if self._buffer.startswith(b"\r\n"):  # some clients end a body with a line too many
            self._buffer = self._buffer[2:]
            return True
        request = read_request(self._buffer)
        if request is None:
            return False
        end = request.size + request.headers.body_size
        if len(self._buffer) < end:
            if request.headers.expects_continue and not self._was_told_to_continue:
                self._was_told_to_continue = True
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return False
        body = self._buffer[request.size : end] if request.headers.body_size else b""
        self._buffer = self._buffer[end:]
        self._was_told_to_continue = False
        reply = self._host.receive(request, body)
        self._on_end = reply.on_end
        if reply.spoiling is None and not reply.pause_s:
            self._write(request, reply)
            self._tell_end()
        else:
            self._timer = self._loop.call_later(reply.pause_s, self._send_in_its_way, request, reply)
        return True

    def _refuse(self, bad: BadRequest) -> None:
        """Say what is wrong and end our side; what the client still sends is read and thrown away, so that it can read
        our answer before it notices."""
        self._is_over, self._buffer = True, b""
        self._write(None, error(bad.status, "bad_request", bad.reason))
        self._transport.write_eof()

    def _send_in_its_way(self, request: Request, reply: Reply) -> None:
        self._timer = None
        has_body = request.method != b"HEAD"
        match reply.spoiling:
            case Spoiling.RESET:
                self._reset()
            case Spoiling.TIMEOUT:
                self._timer = self._loop.call_later(self._host.manners.hang_s, self._reset)
            case Spoiling.TRUNCATED if has_body:
                self._send_half(request, reply)
            case Spoiling.SLOW if has_body:
                self._send_in_drops(request, reply)
            case _:
                self._write(request, reply)
                self._tell_end()
                self._proceed()

    def _write(self, request: Request | None, reply: Reply) -> None:
        """Hand a reply over; close after it if the client wants that."""
        head = head_of(reply, request, self._host.name)
        if request is not None and request.method == b"HEAD":
            self._transport.write(head)
            self._host.ledger.bytes_sent += len(head)
        else:
            self._transport.writelines([head, *reply.pieces])
            self._host.ledger.bytes_sent += len(head) + reply.size
        if request is not None and not request.keep_alive:
            self._end()

    def _tell_end(self) -> None:
        if self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            on_end()

    def _end(self) -> None:
        """Close when everything is sent."""
        self._is_over, self._buffer = True, b""
        self._transport.close()

    def _close_if_done(self) -> None:
        if self._has_ended and self._timer is None and not self._is_full and not self._is_over:
            self._end()

    def _reset(self) -> None:
        """The connection breaks, as the client sees it: a reset, not an orderly end."""
        handle: socket.socket = self._transport.get_extra_info("socket")
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self._transport.abort()

    def _send_half(self, request: Request, reply: Reply) -> None:
        """Half of what was promised, and then the end of the connection."""
        begun = head_of(reply, request, self._host.name) + b"".join(reply.pieces)[: reply.size // 2]
        self._transport.write(begun)
        self._host.ledger.bytes_sent += len(begun)
        self._end()

    def _send_in_drops(self, request: Request, reply: Reply) -> None:
        body = b"".join(reply.pieces)
        drop = max(1, -(-len(body) // _DROPS))
        drops = [body[start : start + drop] for start in range(0, len(body), drop)]
        head = head_of(reply, request, self._host.name)
        self._transport.write(head)
        self._host.ledger.bytes_sent += len(head)
        self._drip(request, reply, drops)

    def _drip(self, request: Request, reply: Reply, drops: list[bytes]) -> None:
        self._timer = None
        if drops:
            self._transport.write(drops[0])
            self._host.ledger.bytes_sent += len(drops[0])
            self._timer = self._loop.call_later(
                self._host.manners.drip_s / _DROPS, self._drip, request, reply, drops[1:]
            )
            return
        self._tell_end()
        if not request.keep_alive:
            self._end()
        self._proceed()
