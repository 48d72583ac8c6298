"""Load by the clock, and how long answers took."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import count

import msgspec

from scenarios.deployment import Site, path_of
from scenarios.scenario import Check
from tidegate.core.priority import Priority

_BATCH_EVERY_S = 0.05
_WAIT_S = 20
WARM = range(1, 201)
"""Subjects that are known before a measurement begins."""
WITHOUT_MEMORY = {"snapshots": {"local_cache_bytes": 0}, "breaker": {"open_for": "5s"}}
"""Readers must notice an unavailable server, so nothing is cached in the memory of the HTTP processes. A breaker
tries again sooner than by default (30 s), so that this too is seen in a scenario's time."""
_FIRST, _LOW = 1_000_000, 500_000


class Timings:
    """How long answers took, from the moment in which they were due to be asked for."""

    def __init__(self) -> None:
        self.taken_ms: list[float] = []
        self.failed: Counter[str] = Counter()
        """Failed or wrong answers."""

    def add(self, since: float, failure: str | None) -> None:
        """One that was due at `since`, on the clock of the loop."""
        self.taken_ms.append((asyncio.get_running_loop().time() - since) * 1000)
        if failure is not None:
            self.failed[failure] += 1

    def percentile(self, share: float) -> float:
        """So many of all took no longer than this, in ms."""
        assert self.taken_ms, "nothing was measured"
        ordered = sorted(self.taken_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    @property
    def p95(self) -> float:
        """In ms."""
        return self.percentile(0.95)

    def below(self, what: str, most_ms: float) -> Check:
        """That the 95th percentile is below this."""
        return Check(f"{what} p95, of {len(self.taken_ms):,}", self.p95, "<", most_ms, "ms")

    def all_good(self, what: str) -> Check:
        """That every answer was one."""
        why = "; ".join(f"{times} x {failure}" for failure, times in self.failed.most_common(3))
        return Check(f"{what} that failed" + (f" ({why})" if why else ""), self.failed.total(), "=", 0)


class _Told(msgspec.Struct):
    freshness: str


_told = msgspec.json.Decoder(_Told)


async def paced(per_second: float, seconds: float, act: Callable[[float], Awaitable[None]]) -> None:
    """Begin `act` at this rate, regardless of earlier results; each gets its due time. Returns when all ended."""
    loop = asyncio.get_running_loop()
    began, acts = loop.time(), list[asyncio.Future[None]]()
    for number in range(round(per_second * seconds)):
        due = began + number / per_second
        if (early_s := due - loop.time()) > 0:
            await asyncio.sleep(early_s)
        acts.append(asyncio.ensure_future(act(due)))
    await asyncio.gather(*acts)


class Load:
    """Readers, users and prefetch of one scenario; subjects that were never asked for are taken in turn."""

    def __init__(self, site: Site, first: int = _FIRST) -> None:
        """`first`: the number of the first cold subject."""
        self._site = site
        self._cold: Iterator[int] = count(first)
        self._low: Iterator[int] = count(first + _LOW)
        self.reads, self.high = Timings(), Timings()
        self.asked_high: list[int] = []
        self.asked_low: list[int] = []

    async def warm_up(self) -> None:
        """Have the warm ones refreshed, and forget the calls that it took."""
        await asyncio.gather(*(self._site.client.get(f"{path_of(each)}?wait={_WAIT_S}") for each in WARM))
        await self._site.until_settled(within_s=_WAIT_S)
        await self._site.game.clear()

    async def read_warm(self, per_second: float, seconds: float) -> None:
        """Readers of known subjects."""
        turn = count()
        await paced(per_second, seconds, lambda due: self.read(WARM[next(turn) * 7 % len(WARM)], due))

    async def users(self, per_second: float, seconds: float, *, wait: bool = True) -> None:
        """Readers of new subjects: each reads its subject and waits until it is there."""
        await paced(per_second, seconds, lambda due: self._use(due, wait=wait))

    async def prefetch(self, per_second: float, seconds: float) -> None:
        """Ask for so many in the background."""
        each_time = per_second * _BATCH_EVERY_S
        due_so_far = count(1)

        async def ask(_due: float) -> None:
            wanted = round(each_time * next(due_so_far)) - len(self.asked_low)
            await self.flood(wanted)

        await paced(1 / _BATCH_EVERY_S, seconds, ask)

    async def flood(self, events: int) -> list[int]:
        """Ask for so many in the background, as fast as can be; which."""
        subjects = [next(self._low) for _ in range(events)]
        self.asked_low += subjects
        await self._site.ask(subjects, Priority.LOW)
        return subjects

    async def read(self, subject: int, due: float) -> None:
        """One read, which was due at this moment."""
        try:
            answer = await self._site.client.get(path_of(subject))
            self.reads.add(due, None if answer.status == 200 else str(answer.status))
        except (OSError, TimeoutError) as error:
            self.reads.add(due, type(error).__name__)

    async def _use(self, due: float, *, wait: bool) -> None:
        subject = next(self._cold)
        self.asked_high.append(subject)
        await self.read(subject, due)
        if wait:
            await self.until_fresh(subject, due)

    async def until_fresh(self, subject: int, since: float) -> None:
        """A user that waits for a subject; the wait counts as HIGH."""
        try:
            answer = await self._site.client.get(f"{path_of(subject)}?wait={_WAIT_S}")
            told = _told.decode(answer.body).freshness if answer.status == 200 else str(answer.status)
            self.high.add(since, None if told == "FRESH" else told)
        except (OSError, TimeoutError) as error:
            self.high.add(since, type(error).__name__)

    async def until_all_fresh(self, subjects: Iterable[int]) -> None:
        """Users that wait for these subjects, and ask again if nothing was queued."""
        async with asyncio.timeout(60):
            await asyncio.gather(*(self._insist(each) for each in subjects))

    async def _insist(self, subject: int) -> None:
        while True:
            answer = await self._site.client.get(f"{path_of(subject)}?wait={_WAIT_S}")
            if answer.status == 200 and _told.decode(answer.body).freshness == "FRESH":
                return
            await asyncio.sleep(0.2)
