"""The simulated GitHub with a control of calls: tests can wait for calls, hold them, and release them."""

import asyncio
from collections.abc import Callable

from aiohttp import web

from tidegate_simulators.github import GithubSimulator, SimulatorConfig


class Hold:
    """Calls with a given text in the address are held; they count when they are released."""

    def __init__(self, contains: str, most: int) -> None:
        self._contains, self._most = contains, most
        self._arrived = asyncio.Semaphore(0)
        self._released = asyncio.Event()
        self.held = 0

    def takes(self, url: str) -> bool:
        """Whether this call has to wait."""
        return self._contains in url and self.held < self._most and not self._released.is_set()

    async def wait(self) -> None:
        """Hold one call."""
        self.held += 1
        self._arrived.release()
        await self._released.wait()

    async def arrived(self, calls: int = 1, *, within_s: float = 60) -> None:
        """Wait until so many more calls are held."""
        async with asyncio.timeout(within_s):
            for _ in range(calls):
                await self._arrived.acquire()

    def release(self) -> None:
        """Release the held calls, and hold no more."""
        self._released.set()


class WatchedGithub(GithubSimulator):
    """Answers as before."""

    def __init__(self, config: SimulatorConfig) -> None:
        super().__init__(config)
        self.arrived = 0
        """Calls that arrived, including held ones."""
        self.under_way = 0
        """Those of them that were not answered yet."""
        self.on_call: Callable[[str], object] = lambda _: None
        """Called with the address of every call when it arrives."""
        self._holds: list[Hold] = []
        self._moved: dict[str, str] = {}
        self._awaited: dict[int, asyncio.Event] = {}

    def hold(self, contains: str = "", *, most: int = 1_000_000) -> Hold:
        """Hold calls from now on."""
        hold = Hold(contains, most)
        self._holds.append(hold)
        return hold

    def move(self, path: str, to: str) -> None:
        """Answer calls below `path` with 301 from now on, and the same place below `to`."""
        self._moved[path] = to

    async def until_arrived(self, calls: int, *, within_s: float = 60) -> None:
        """Wait until so many calls came since the start."""
        if self.arrived < calls:
            async with asyncio.timeout(within_s):
                await self._awaited.setdefault(calls, asyncio.Event()).wait()

    async def stop(self) -> None:
        """See `GithubSimulator.stop`."""
        for hold in self._holds:
            hold.release()
        await super().stop()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.arrived += 1
        self.under_way += 1
        try:
            return await self._answer(request, request.raw_path)
        except ConnectionResetError:  # the caller has died
            return web.Response()
        finally:
            self.under_way -= 1

    async def _answer(self, request: web.BaseRequest, url: str) -> web.StreamResponse:
        if self.arrived in self._awaited:
            self._awaited.pop(self.arrived).set()
        self.on_call(url)
        for hold in self._holds:
            if hold.takes(url):
                await hold.wait()
        for path, to in self._moved.items():
            if url.startswith(path):
                return web.Response(status=301, headers={"Location": self.url + to + url.removeprefix(path)})
        return await super()._handle(request)
