"""Plays one fleet on a virtual clock: events in the order of their time, each with the seeded choices it needs."""

import hashlib
import heapq
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random

import msgspec

from chaos.simulation.upstream import Answer, Upstream, UpstreamLimits
from tidegate.core.clock import ManualClock
from tidegate.core.ids import new_id
from tidegate.primitives.gate import Admitted, CredentialLimits, Gate, Job, Outcome, Settlement, settlement
from tidegate.primitives.gate.scripts import gate_keys
from tidegate.primitives.settings import StreamSettings
from tidegate.primitives.stream import Stream
from tidegate.storage.valkey import Valkey

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
LEASE_MS = 10_000
GROUP = StreamSettings().group
_UNLIMITED = StreamSettings(max_deliveries=1_000_000)
_FAULTY_SHARE = 0.6
"""Of the calls; the others show that everything ends once faults have ended."""
_MOST_EVENTS = 50_000_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is simulated. The same plan gives the same history."""

    seed: int = 1
    workers: int = 100
    credentials: int = 10_000
    pools: int = 1_000
    jobs_per_credential: int = 10
    small_runs: int = 4
    """Of each pool, beside one giant run; half of them arrive while it is worked on."""
    small_jobs: int = 10
    room: int = 60
    """Jobs that a worker holds at once."""
    faults: int = 60
    """Workers killed, workers frozen and leaders killed. They come with calls, so they meet workers at work."""
    limits: UpstreamLimits = UpstreamLimits()
    reuses_permits: bool = False
    """Break a rule: make calls with the permits of dead workers, to show that the simulation finds it."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, and each broken invariant."""

    jobs: int
    calls: int
    happened: dict[str, int]
    finished_ms: int
    bound_ms: int
    unfairness: int
    """Largest difference of dispatched jobs between two runs of a pool while both had waiting jobs."""
    digest: str
    """Hash of the history: the same for the same plan."""
    broken: list[str]


class _Held(msgspec.Struct):
    admitted: Admitted
    fence: int
    answer: Answer | None = None
    is_settled_as: Outcome | None = None
    is_committed: bool = False


class _Worker(msgspec.Struct):
    name: str
    held: dict[str, _Held] = msgspec.field(default_factory=dict[str, _Held])
    is_dead: bool = False
    frozen_until_ms: int = 0
    answered: list[_Held] = msgspec.field(default_factory=list[_Held])
    to_settle: list[_Held] = msgspec.field(default_factory=list[_Held])


class _Row(msgspec.Struct):
    """A job in SQL."""

    pool: str
    run: str
    fence: int = 0
    applied: int = 0


class _RunHistory(msgspec.Struct):
    enqueued_at: int
    """Number of dispatches before it was enqueued."""
    dispatched: list[int] = msgspec.field(default_factory=list[int])


class Fleet:
    """One simulation on a unit of its own."""

    def __init__(self, valkey: Valkey, plan: Plan) -> None:
        self._plan, self._random, self._valkey = plan, Random(plan.seed), valkey
        self._clock, self._now_ms = ManualClock(EPOCH), 0
        self._unit = valkey.unit(f"simulation-{new_id()}")
        self._stream = Stream(valkey, self._unit, "jobs", _UNLIMITED)
        self._gate = Gate(
            valkey,
            self._unit,
            stream=self._stream.keys.stream,
            group=GROUP,
            wake=self._unit.key("wake"),
            clock=self._clock,
        )
        self._keys = gate_keys(self._unit, stream=self._stream.keys.stream, wake=self._unit.key("wake"))
        credentials = [f"credential-{n}" for n in range(plan.credentials)]
        self._pool_of = {name: f"pool-{n % plan.pools}" for n, name in enumerate(credentials)}
        self._upstream = Upstream(credentials, plan.limits, self._random)
        self._workers: list[_Worker] = []
        self._names, self._order = count(), count()
        self._events: list[tuple[int, int, Callable[[], Awaitable[None]]]] = []
        self._fires_at: int | None = None
        self._leader_away_until = self._faulty_until_ms = 0
        self._fault_calls: list[int] = []
        """The numbers of the calls with which faults come, the next one last."""
        self._rows: dict[str, _Row] = {}
        self._unfinished = 0
        self._read = 0
        self._runs: defaultdict[str, dict[str, _RunHistory]] = defaultdict(dict)
        self._first_dispatch: set[str] = set()
        self._happened: Counter[str] = Counter()
        self._digest = hashlib.sha256()
        self._broken: list[str] = []

    async def play(self) -> Report:
        """From the first job to the last."""
        await self._prepare()
        for _ in range(_MOST_EVENTS):
            if not self._events or not (self._unfinished or self._is_busy()):
                break
            await self._tick()
        return await self._judge()

    async def _prepare(self) -> None:
        plan, limits = self._plan, self._plan.limits
        await self._valkey.execute("XGROUP", "CREATE", self._stream.keys.stream, GROUP, "0", "MKSTREAM")
        bounds = CredentialLimits(
            concurrency=limits.at_once,
            first_concurrency=2,
            per_minute=limits.per_minute,
            floor=0,
            window=timedelta(milliseconds=limits.window_ms),
        )
        for credential, pool in self._pool_of.items():
            await self._gate.register(credential, pool=pool, limits=bounds)
        self._workers = [self._new_worker() for _ in range(plan.workers)]
        giant = plan.credentials * plan.jobs_per_credential // plan.pools - plan.small_runs * plan.small_jobs
        for n in range(plan.pools):
            self._at(0, lambda pool=f"pool-{n}": self._begin(pool, "giant", giant))
            for small in range(plan.small_runs):
                at_ms = 0 if small % 2 else self._random.randrange(plan.limits.window_ms)
                self._at(at_ms, lambda pool=f"pool-{n}", run=f"small-{small}": self._begin(pool, run, plan.small_jobs))
        self._unfinished = plan.pools * (giant + plan.small_runs * plan.small_jobs)
        last = int(self._unfinished * _FAULTY_SHARE)
        self._fault_calls = sorted((self._random.randrange(last) for _ in range(plan.faults)), reverse=True)

    def _new_worker(self) -> _Worker:
        return _Worker(f"worker-{next(self._names)}")

    def _at(self, at_ms: int, act: Callable[[], Awaitable[None]]) -> None:
        heapq.heappush(self._events, (at_ms, next(self._order), act))

    def _for(self, worker: _Worker, in_ms: int, act: Callable[[], Awaitable[None]]) -> None:
        """A step of a worker: later while it is frozen, and never once it is dead."""

        async def step() -> None:
            if worker.is_dead:
                return
            if worker.frozen_until_ms > self._now_ms:
                self._at(worker.frozen_until_ms, step)
            else:
                await act()

        self._at(self._now_ms + in_ms, step)

    async def _tick(self) -> None:
        """Everything of one moment; then idle workers read, and the timekeeper plans its next turn."""
        at_ms, _, act = heapq.heappop(self._events)
        if at_ms > self._now_ms:
            self._clock.advance(timedelta(milliseconds=at_ms - self._now_ms))
            self._now_ms = at_ms
        await act()
        while self._events and self._events[0][0] == self._now_ms:
            await heapq.heappop(self._events)[2]()
        await self._deliver()
        await self._plan_timekeeper()

    async def _plan_timekeeper(self) -> None:
        first = await self._valkey.execute("ZRANGE", self._keys["due"], 0, 0, "WITHSCORES")
        if not first:
            return
        due_ms = int(float(first[0][1])) - self._clock.pinned_ms + self._now_ms
        at_ms = max(due_ms, self._now_ms + 1, self._leader_away_until)
        if self._fires_at is None or at_ms < self._fires_at:
            self._fires_at = at_ms
            self._at(at_ms, self._fire)

    async def _fire(self) -> None:
        if self._fires_at is not None and self._now_ms >= self._fires_at >= self._leader_away_until:
            self._fires_at = None
            await self._gate.fire()
        elif self._fires_at is not None and self._now_ms >= self._fires_at:
            self._fires_at = None  # the leader died meanwhile: planned again for the next one

    # Runs

    async def _begin(self, pool: str, run: str, jobs: int) -> None:
        """Commit a run in SQL and enqueue it."""
        before = int((await self._valkey.execute("XINFO", "STREAM", self._stream.keys.stream))[b"entries-added"])
        self._runs[pool][run] = _RunHistory(before)
        names = [f"{pool}/{run}/{n:06}" for n in range(jobs)]
        for name in names:
            self._rows[name] = _Row(pool, f"{pool}/{run}")
        await self._gate.enqueue([self._job(name) for name in names])

    def _job(self, name: str) -> Job:
        row = self._rows[name]
        return Job(job=name, pool=row.pool, run=row.run)

    # Workers

    async def _deliver(self) -> None:
        """Workers with room read what was dispatched, in a random order."""
        while free := [
            each for each in self._workers if each.frozen_until_ms <= self._now_ms and len(each.held) < self._plan.room
        ]:
            worker = self._random.choice(free)
            most = min(self._random.randrange(1, 30), self._plan.room - len(worker.held))
            stream = self._stream.keys.stream
            reply = await self._valkey.execute(
                "XREADGROUP", "GROUP", GROUP, worker.name, "COUNT", most, "STREAMS", stream, ">"
            )
            messages = reply.get(stream.encode(), []) if reply else []
            if not messages:
                return
            self._claim(worker, [(message.decode(), fields) for message, fields in messages])

    def _claim(self, worker: _Worker, messages: list[tuple[str, dict[bytes, bytes]]]) -> None:
        claimed: list[_Held] = []
        for message, fields in messages:
            admitted = Admitted.from_fields(message, fields, int(fields.get(b"deliveries", b"1")))
            row = self._rows[admitted.job]
            self._note_dispatch(admitted.job, row)
            row.fence += 1
            held = worker.held[message] = _Held(admitted, row.fence)
            if row.applied:  # its worker died or froze between the commit and the settlement
                self._happened["claims of finished jobs"] += 1
                held.is_settled_as, held.is_committed = Outcome.UNUSED, True
                self._settle_soon(worker, held)
            elif admitted.deliveries > 1 and not self._plan.reuses_permits:
                # The dead worker may have called: its permit is spent, and the job waits for another one.
                held.is_settled_as, held.is_committed = Outcome.UNKNOWN, True
                self._settle_soon(worker, held)
            else:
                claimed.append(held)
        # Mostly at once; some of them so late that the permit is too old.
        delay_ms = self._random.randrange(50) if self._random.random() < 0.98 else self._random.randrange(4000)
        self._for(worker, delay_ms, lambda: self._send(worker, claimed))

    def _note_dispatch(self, job: str, row: _Row) -> None:
        self._read += 1
        if job not in self._first_dispatch:
            self._first_dispatch.add(job)
            self._runs[row.pool][row.run.rpartition("/")[2]].dispatched.append(self._read)

    async def _send(self, worker: _Worker, batch: list[_Held]) -> None:
        """Confirm the permits; send the requests that may be sent, and return the others."""
        if not batch:
            return
        confirmed = await self._gate.confirm([each.admitted for each in batch])
        for held, blocked_ms in zip(batch, confirmed, strict=True):
            if blocked_ms is None:
                self._at(self._now_ms + self._random.randrange(300), lambda held=held: self._arrive(worker, held))
            else:
                self._happened["permits returned"] += 1
                held.is_settled_as = Outcome.UNUSED
                worker.answered.append(held)
                self._commit_soon(worker)

    async def _arrive(self, worker: _Worker, held: _Held) -> None:
        """The request reaches the upstream, whatever happened to the worker meanwhile."""
        credential = held.admitted.credential
        held.answer = self._upstream.arrive(credential, self._now_ms, is_faulty=self._has_faults())
        while self._fault_calls and self._upstream.calls >= self._fault_calls[-1]:
            self._fault_calls.pop()
            self._faulty_until_ms = self._now_ms
            fault = self._random.choice([self._kill, self._freeze, self._freeze, self._lose_leader])
            self._at(self._now_ms + self._random.randrange(300), fault)
        self._digest.update(f"{self._now_ms} {held.admitted.job} {credential}\n".encode())
        took_ms = 20 + int(self._random.expovariate(1 / 200)) % 3000

        async def leave() -> None:
            self._upstream.leave(credential)
            self._for(worker, self._random.randrange(20), receive)

        async def receive() -> None:
            worker.answered.append(held)
            self._commit_soon(worker)

        self._at(self._now_ms + took_ms, leave)

    def _commit_soon(self, worker: _Worker) -> None:
        if len(worker.answered) == 1:
            self._for(worker, 5 + self._random.randrange(40), lambda: self._commit(worker))

    async def _commit(self, worker: _Worker) -> None:
        """One transaction for all that was answered: a result counts if its fencing token is the newest."""
        for held in worker.answered:
            row, answer = self._rows[held.admitted.job], held.answer
            if answer is not None:
                held.is_settled_as = Outcome.UNKNOWN if answer.is_lost else Outcome.ANSWERED
                is_done = not (answer.is_lost or answer.has_failed or answer.blocked_ms)
                if is_done and held.fence == row.fence and not row.applied:
                    row.applied += 1
                    self._unfinished -= 1
                elif is_done:
                    self._happened["results rejected by the fencing token"] += 1
            held.is_committed = True
            self._settle_soon(worker, held)
        worker.answered.clear()

    def _settle_soon(self, worker: _Worker, held: _Held) -> None:
        worker.to_settle.append(held)
        if len(worker.to_settle) == 1:
            self._for(worker, 2 + self._random.randrange(20), lambda: self._settle(worker))

    async def _settle(self, worker: _Worker) -> None:
        batch, worker.to_settle = worker.to_settle, []
        settled = await self._gate.settle([self._settlement(each) for each in batch])
        self._happened["settlements that came too late"] += settled.stale
        for held in batch:
            worker.held.pop(held.admitted.message, None)
        if again := [each.admitted.job for each in batch if not self._rows[each.admitted.job].applied]:
            self._happened["jobs enqueued again"] += len(again)
            await self._gate.enqueue([self._job(name) for name in again])

    def _settlement(self, held: _Held) -> Settlement:
        assert held.is_settled_as is not None
        if held.is_settled_as is not Outcome.ANSWERED:
            return settlement(held.admitted, held.is_settled_as)
        assert held.answer is not None
        if held.answer.blocked_ms is not None:
            return settlement(held.admitted, blocked_ms=held.answer.blocked_ms)
        return settlement(held.admitted, allowance=held.answer.allowance)

    # Faults

    def _has_faults(self) -> bool:
        return bool(self._fault_calls)

    def _victim(self) -> _Worker:
        """A worker that has something to lose, if there is one."""
        return self._random.choice([each for each in self._workers if each.held] or self._workers)

    async def _kill(self) -> None:
        """A worker dies with all it holds, and another starts. Its messages are taken over when its lease ends."""
        place = self._workers.index(self._victim())
        dead, self._workers[place] = self._workers[place], self._new_worker()
        self._workers[place].frozen_until_ms = self._now_ms + 2_000  # it starts
        dead.is_dead = True
        self._happened["workers killed"] += 1
        self._at(self._now_ms + LEASE_MS, lambda: self._take_over(dead))

    async def _freeze(self) -> None:
        """A worker stands still, some longer than its lease. Then it goes on, and does not know that it lost it."""
        worker, span_ms = self._victim(), self._random.randrange(1_000, 30_000)
        worker.frozen_until_ms = max(worker.frozen_until_ms, self._now_ms + span_ms)
        self._happened["workers frozen"] += 1
        if span_ms > LEASE_MS:
            self._at(self._now_ms + LEASE_MS, lambda: self._take_over(worker))

    async def _take_over(self, worker: _Worker) -> None:
        if worker.is_dead or worker.frozen_until_ms > self._now_ms:
            self._happened["messages taken over"] += await self._stream.take_over(worker.name)

    async def _lose_leader(self) -> None:
        """No timekeeper until the lease of the leader has ended."""
        self._happened["leaders killed"] += 1
        self._leader_away_until = max(self._leader_away_until, self._now_ms + LEASE_MS)

    # Judgement

    def _is_busy(self) -> bool:
        return any(each.held for each in self._workers)

    async def _judge(self) -> Report:
        if self._unfinished:
            self._broken.append(f"{self._unfinished} jobs are unfinished, and nothing happens any more")
        twice = [name for name, row in self._rows.items() if row.applied > 1]
        self._broken += [f"{name} was applied more than once" for name in twice]
        waiting, _ = await self._gate.lengths()
        left = await self._valkey.execute("XLEN", self._stream.keys.stream)
        permits = await self._valkey.execute("HLEN", self._keys["permits"])
        if waiting or left or permits > 2:  # one field counts the permits, and one is padding
            self._broken.append(f"left in the gate: {waiting} waiting jobs, {left} messages, {permits - 2} permits")
        self._broken += self._upstream.violations
        unfairness, bound_ms = max(map(self._unfairness, self._runs.values())), self._bound_ms()
        if unfairness > MOST_UNFAIR:
            self._broken.append(f"a run got {unfairness} jobs more than another of its pool while both waited")
        if self._now_ms > bound_ms:
            self._broken.append(f"finished after {self._now_ms} ms, later than {bound_ms} ms")
        return Report(
            jobs=len(self._rows),
            calls=self._upstream.calls,
            happened=dict(sorted(self._happened.items())),
            finished_ms=self._now_ms,
            bound_ms=bound_ms,
            unfairness=unfairness,
            digest=self._digest.hexdigest()[:16],
            broken=self._broken,
        )

    def _unfairness(self, runs: dict[str, _RunHistory]) -> int:
        """The largest difference between two runs, while both had jobs that were never dispatched."""
        worst = 0
        histories = list(runs.values())
        for n, one in enumerate(histories):
            for other in histories[:n]:
                begin = max(one.enqueued_at, other.enqueued_at)
                end = min(one.dispatched[-1], other.dispatched[-1])
                counts = [sum(begin < at <= end for at in each.dispatched) for each in (one, other)]
                worst = max(worst, abs(counts[0] - counts[1]))
        return worst

    def _bound_ms(self) -> int:
        """Windows that the calls need at full use, two cut ones, the time of faults; leases, freezes, blocks."""
        plan, limits = self._plan, self._plan.limits
        per_window = min(limits.quota, limits.per_minute * limits.window_ms // 60_000) * plan.credentials
        windows = -(-self._upstream.calls // per_window)
        return (windows + 2) * limits.window_ms + self._faulty_until_ms + 60_000


MOST_UNFAIR = 2
