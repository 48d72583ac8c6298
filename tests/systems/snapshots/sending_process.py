"""One process that refreshes subjects of an upstream that closes each connection, as fast as its limiter lets it.

python -m tests.systems.snapshots.sending_process VALKEY_URL UPSTREAM_URL LIMITER_SETTINGS SUBJECTS FREEZE_AT MOMENT

It stops itself during its FREEZE_AT-th request, until a SIGCONT. MOMENT is `begun`: this request and those before it
have no connection yet; or `checked`: its permit was found valid, and its first byte is about to leave.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta

from tidegate.core.backoff import Backoff
from tidegate.core.clock import SystemClock
from tidegate.core.priority import Priority
from tidegate.engine.upstream import Answer, Permit, Request, UpstreamClient
from tidegate.primitives.coalescer import Coalescer
from tidegate.primitives.limiter import Limiter, LimiterSettings
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots.calls import CallOutcome, CancellableWait, RefreshCalls, UpstreamCaller
from tidegate.systems.snapshots.events import Reason, RefreshEvent
from tidegate.systems.snapshots.model import FoundSubject, SnapshotSubject
from tidegate.systems.snapshots.store import Refreshed


class Item:
    """A kind of snapshot whose answers are kept as they are."""

    name, ttl = "item", timedelta(minutes=15)

    def __init__(self, url: str) -> None:
        self._url = url

    def request(self, key: str, upstream_id: str | None) -> Request:
        del upstream_id
        return Request(url=f"{self._url}/items/{key}", purpose="test.item", headers={"X-Api-Key": "secret"})

    def read(self, key: str, answer: Answer) -> FoundSubject:
        return FoundSubject(answer.body, identity=key)  # the test is about requests; its bodies name no subject


class FreezingPermit:
    """Stops this process after the permit was found valid."""

    def __init__(self, permit: Permit) -> None:
        self._permit = permit
        self.spends, self.sent = permit.spends, permit.sent

    def use(self) -> None:
        self._permit.use()
        os.kill(os.getpid(), signal.SIGSTOP)


class FreezingCaller:
    """Stops this process during its `at`-th request."""

    def __init__(self, client: UpstreamClient, at: int, moment: str) -> None:
        self._client, self._left, self._moment = client, at, moment

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        self._left -= 1
        if self._left == 0 and self._moment == "begun":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self._left == 0 and permit is not None:
            permit = FreezingPermit(permit)
        return await self._client.fetch(request, permit)


async def refresh_all(
    valkey: Valkey,
    url: str,
    settings: LimiterSettings,
    keys: range,
    priority: Priority = Priority.LOW,
    *,
    through: Callable[[UpstreamClient], UpstreamCaller] = lambda client: client,
) -> list[CallOutcome]:
    """Refresh every key, all at once; `through` wraps the client that sends."""
    clock = SystemClock()
    async with UpstreamClient(name="sending") as client:
        calls = RefreshCalls(
            {Item.name: Item(url)},
            caller=through(client),
            limiter=Limiter(valkey, valkey.unit("sending"), clock, settings),
            coalescer=Coalescer(valkey),
            tries=3,
            pauses=Backoff(first=timedelta(milliseconds=10), most=timedelta(milliseconds=10)),
        )
        wait = CancellableWait(set(), asyncio.Event())
        return await asyncio.gather(
            *(calls.refresh(_event(key, priority), wait=wait, on_retry=_ignore) for key in keys)
        )


def _ignore(subject: SnapshotSubject, version: int, message: str, tries: int) -> None:
    del subject, version, message, tries


def _event(key: int, priority: Priority) -> RefreshEvent:
    return RefreshEvent(
        event_id=f"e{key}",
        subject_id=f"item/{key}",
        priority=priority,
        reason=Reason.PREFETCH,
        requested_at=SystemClock().now(),
        version=1,
    )


async def main(valkey_url: str, url: str, settings: str, subjects: int, freeze_at: int, moment: str) -> None:
    valkey = await Valkey.connect(valkey_url)
    outcomes = await refresh_all(
        valkey,
        url,
        LimiterSettings.model_validate_json(settings),
        range(subjects),
        through=lambda client: FreezingCaller(client, freeze_at, moment),
    )
    await valkey.close()
    assert all(isinstance(outcome, Refreshed) for outcome in outcomes), outcomes


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]))
