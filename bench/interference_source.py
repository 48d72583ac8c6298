"""Two sources with an upstream each, of which one is slow; run as a program, this is the upstream of both."""

import asyncio
import json
import os
from collections.abc import Sequence

import uvloop
from aiohttp import web

from tidegate.engine.source import JobSpec, Reading, Subject, Task
from tidegate.engine.upstream import Answer, Request
from tidegate.primitives.gate import Allowance

ADDRESS = "INTERFERENCE_URL"
QUICK_S, SLOW_S = 0.02, 5.0
LARGE, LISTS, PER_LIST = "large", 20, 1_000
_PLENTY = 10**9
_SAID = Allowance(limit=_PLENTY, remaining=_PLENTY, window=4_000_000_000, resets_in_ms=3_600_000)


class QuickSource:
    """A run is a list with two items; that of the subject `large` has 20 lists of 1,000 items."""

    name = "quick"
    planning_kinds = frozenset({"LIST"})

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        lists = LISTS if subject.login == LARGE else 1
        return [JobSpec(kind="LIST", resource=f"{subject.login}:{n}") for n in range(lists)]

    def request(self, task: Task, secret: str) -> Request:
        del task, secret
        return Request(url=f"{os.environ[ADDRESS]}/{self.name}", purpose=f"{self.name}.page")

    def read(self, task: Task, answer: Answer) -> Reading:
        del answer
        if task.spec.kind != "LIST":
            return Reading(allowance=_SAID)
        items = PER_LIST if task.spec.resource.startswith(f"{LARGE}:") else 2
        found = [JobSpec(kind="ITEM", resource=task.spec.resource, page=str(n)) for n in range(items)]
        return Reading(follow_ups=found, allowance=_SAID)


class SlowSource(QuickSource):
    """The same with an upstream that takes 5 s for each answer."""

    name = "slow"


async def _main() -> None:
    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(SLOW_S if request.path == "/slow" else QUICK_S)
        return web.Response(body=b"{}")

    app = web.Application()
    app.router.add_get("/{source}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(json.dumps({"url": f"http://127.0.0.1:{runner.addresses[0][1]}"}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_main())
