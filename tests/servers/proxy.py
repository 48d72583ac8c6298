"""A wire between a client and a real server that a test can cut, or make slow."""

import asyncio
from contextlib import suppress
from typing import Self


class Proxy:
    """Passes bytes on between a port of its own and `port`, until it is told otherwise."""

    def __init__(self, port: int, *, at: int = 0) -> None:
        """`at`: the port to listen on, where somebody has to know it before; 0: any."""
        self._target = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._fatal: bytes | None = None
        self._delay_s, self._delay_changed = 0.0, asyncio.Event()
        self._drops = False
        self.silenced: set[asyncio.StreamWriter] = set()
        """Open connections on which a client has sent something that is lost."""
        self.port = at

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def listen(self) -> None:
        """Take connections, on the same port as before."""
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Cut all connections and take no new ones."""
        if self._server and self._server.is_serving():
            loop = asyncio.get_running_loop()
            for listening in self._server.sockets:
                loop.remove_reader(listening.fileno())
            # A closed server leaves the sockets of connections that were accepted in this step open.
            await asyncio.sleep(0)
            self._server.close()
        self.cut()

    def cut(self) -> None:
        """Cut all connections that are open."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def delay(self, seconds: float) -> None:
        """From now on answers take so much longer, those included that are on their way; 0: as fast as they come."""
        self._delay_s = seconds
        self._delay_changed.set()
        self._delay_changed = asyncio.Event()

    def drop(self) -> None:
        """Lose what clients send from now on. Connections are taken, and stay open."""
        self._drops = True

    def restore(self) -> None:
        """Lose no more, except on connections that lost something: their sender waits long before it repeats it."""
        self._drops = False

    def cut_after(self, fatal: bytes) -> None:
        """Pass the next message that contains `fatal` on to the server, and cut the wire before its answer."""
        self._fatal = fatal

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = self._server
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # the server is away
            writer.transport.abort()
            return
        if server is None or not server.is_serving():  # refused while it was being put through
            back.transport.abort()
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        answers = asyncio.create_task(self._answer(there, writer))
        self._tasks.add(answers)
        requests = asyncio.current_task()
        assert requests
        self._tasks.add(requests)
        await self._pass_on(reader, back, answers=answers, client=writer)

    async def _answer(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Pass answers on in their order, each when it is due: one that waits does not hold up the next for longer."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

        async def listen() -> None:
            with suppress(ConnectionError):
                while data := await source.read(65536):
                    arrived.put_nowait((loop.time(), data))
            arrived.put_nowait((loop.time(), b""))

        listening = asyncio.create_task(listen())
        try:
            with suppress(ConnectionError):
                while True:
                    at, data = await arrived.get()
                    while (left_s := at + self._delay_s - loop.time()) > 0:
                        with suppress(TimeoutError):
                            async with asyncio.timeout(left_s):
                                await self._delay_changed.wait()
                    if not data:
                        break
                    sink.write(data)
                    await sink.drain()
            sink.close()
        finally:
            listening.cancel()

    async def _pass_on(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        *,
        answers: asyncio.Task[None] | None = None,
        client: asyncio.StreamWriter | None = None,
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                if client is not None and (self._drops or client in self.silenced):
                    self.silenced.add(client)
                    continue
                fatal = client is not None and self._fatal is not None and self._fatal in data
                if fatal and answers and client:
                    self._fatal = None
                    answers.cancel()  # nobody hears the answer
                    sink.write(data)
                    await sink.drain()
                    client.transport.abort()
                    return
                sink.write(data)
                await sink.drain()
        if client is not None:
            self.silenced.discard(client)
        sink.close()
