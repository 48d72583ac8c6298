"""A gate with a worker's eye view: what came out, and how to settle it."""

from collections.abc import Sequence
from datetime import timedelta

from tidegate.core.clock import ManualClock, to_ms
from tidegate.core.ids import new_id
from tidegate.primitives.gate import (
    Admitted,
    Allowance,
    CredentialLimits,
    Gate,
    Job,
    Outcome,
    Settled,
    Settlement,
    settlement,
)
from tidegate.primitives.stream import Stream
from tidegate.storage.valkey import Valkey

GROUP = "workers"
PLENTY = CredentialLimits(
    concurrency=1000, first_concurrency=10_000, per_minute=100_000, one_at_a_time=frozenset(), floor=0
)


class GateHarness:
    """A gate on a fresh unit, and one consumer that reads its stream."""

    def __init__(self, valkey: Valkey, clock: ManualClock) -> None:
        self.valkey, self.clock = valkey, clock
        self.unit = valkey.unit(f"shard-{new_id()}")
        self.stream, self.wake = self.unit.key("jobs"), self.unit.key("wake")
        self.gate = Gate(valkey, self.unit, stream=self.stream, group=GROUP, wake=self.wake, clock=clock)
        self.window = to_ms(clock.now()) // 1000 + 3600

    async def prepare(self) -> "GateHarness":
        await self.valkey.execute("XGROUP", "CREATE", self.stream, GROUP, "0", "MKSTREAM")
        return self

    async def register(
        self, credential: str = "token", pool: str = "octocat", limits: CredentialLimits = PLENTY
    ) -> None:
        await self.gate.register(credential, pool=pool, limits=limits)

    async def set_allowance(
        self, limit: int, remaining: int | None = None, *, pool: str = "octocat", bucket: str = "core"
    ) -> None:
        """Spend the probe of every credential of the pool, so that its allowance is known."""
        for credential in (await self.gate.status(pool)).credentials:
            await self.gate.enqueue([job(f"probe-{new_id()}", pool=pool, bucket=bucket, affinity=credential.name)])
        for admitted in await self.admitted():
            await self.settle([self.answered(admitted, limit, limit if remaining is None else remaining)])

    async def admitted(self, count: int = 10_000) -> list[Admitted]:
        """Everything let out and not read yet."""
        reply = await self.valkey.execute(
            "XREADGROUP", "GROUP", GROUP, "consumer", "COUNT", count, "STREAMS", self.stream, ">"
        )
        messages = reply.get(self.stream.encode(), []) if reply else []
        return [Admitted.from_fields(message.decode(), fields, 1) for message, fields in messages]

    async def take_over(self) -> None:
        """The consumer died: what it held becomes new messages."""
        await Stream(self.valkey, self.unit, "jobs").take_over("consumer")

    def answered(self, admitted: Admitted, limit: int, remaining: int, *, window: int | None = None) -> Settlement:
        window = self.window if window is None else window
        resets_in_ms = max(0, window * 1000 - to_ms(self.clock.now()))
        allowance = Allowance(limit=limit, remaining=remaining, window=window, resets_in_ms=resets_in_ms)
        return settlement(admitted, allowance=allowance)

    async def settle(self, results: Sequence[Settlement], follow_ups: Sequence[Job] = ()) -> Settled:
        return await self.gate.settle(results, follow_ups=follow_ups)

    async def settle_as(self, admitted: Sequence[Admitted], outcome: Outcome) -> Settled:
        return await self.settle([settlement(one, outcome) for one in admitted])

    def advance(self, **span: float) -> None:
        self.clock.advance(timedelta(**span))


def job(name: str, **changes: object) -> Job:
    return Job(**{"job": name, "pool": "octocat", "run": "run-1", **changes})  # pyright: ignore[reportArgumentType]


def jobs(count: int, prefix: str = "job", **changes: object) -> list[Job]:
    return [job(f"{prefix}-{n:05}", **changes) for n in range(count)]


def names(admitted: Sequence[Admitted]) -> list[str]:
    return [one.job for one in admitted]
