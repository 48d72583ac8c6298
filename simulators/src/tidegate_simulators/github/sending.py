"""Answers on the wire: whole, late, in drops, cut off, or not at all."""

import asyncio
import contextlib
import socket
import struct

from aiohttp import web

from tidegate_simulators.github.config import Behaviour, FaultKind
from tidegate_simulators.github.request_handler import Reply

_DROPS = 20
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Sender:
    """Sends replies; `close` ends every pause that is under way."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._closing = asyncio.Event()

    def close(self) -> None:
        """Release all waiting requests."""
        self._closing.set()

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._closing.wait()

    async def send(self, request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
        """Send it in the way it asks for."""
        if reply.pause_s > 0:
            await self._pause(reply.pause_s)
        match reply.fault:
            case FaultKind.RESET:
                return self._reset(request)
            case FaultKind.TIMEOUT:
                await self._pause(self._behaviour.hang_s)
                return self._reset(request)
            case FaultKind.BAD_GATEWAY | FaultKind.GATEWAY_TIMEOUT:
                await self._pause(self._behaviour.error_pause_s)
                return await self._whole(request, reply)
            case FaultKind.TRUNCATED:
                return await self._truncated(request, reply)
            case FaultKind.SLOW:
                return await self._slow(request, reply)
            case _:
                return await self._whole(request, reply)

    def _packed(self, request: web.BaseRequest, reply: Reply) -> bytes:
        """The body in the form that the caller takes; the header says which."""
        if self._behaviour.compress and "gzip" in request.headers.get("Accept-Encoding", ""):
            packed = reply.answer.packed
            if packed is not None:
                reply.headers["content-encoding"] = "gzip"
                return packed
        return reply.answer.body

    async def _whole(self, request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
        if reply.fault is FaultKind.INVALID:
            body = reply.answer.body[: len(reply.answer.body) // 2] + b'"<'
        else:
            body = self._packed(request, reply)
        response = web.Response(status=reply.answer.status, body=body or None, headers=reply.headers)
        await response.prepare(request)
        await response.write_eof()
        return response

    async def _begun(self, request: web.BaseRequest, reply: Reply, size: int) -> web.StreamResponse:
        response = web.StreamResponse(status=reply.answer.status, headers=reply.headers)
        response.content_length = size
        await response.prepare(request)
        return response

    async def _truncated(self, request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
        """Send half of the body, then close the connection."""
        body = self._packed(request, reply)
        response = await self._begun(request, reply, len(body))
        await response.write(body[: len(body) // 2])
        if request.transport is not None:
            request.transport.close()
        return response

    async def _slow(self, request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
        body = self._packed(request, reply)
        response = await self._begun(request, reply, len(body))
        drop = max(1, len(body) // _DROPS)
        for start in range(0, len(body), drop):
            await response.write(body[start : start + drop])
            await self._pause(self._behaviour.drip_s / _DROPS)
        await response.write_eof()
        return response

    def _reset(self, request: web.BaseRequest) -> web.StreamResponse:
        """The connection breaks, as the peer sees it: a reset, not an orderly end."""
        transport = request.transport
        if transport is not None:
            handle: socket.socket = transport.get_extra_info("socket")
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            transport.abort()
        return web.Response()
