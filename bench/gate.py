"""The gate: offer, permit, settle, in one process; and whether many lanes cost more than few."""

import asyncio
import time

from bench.figures import Figure, Section
from bench.server import tcp_server
from tidegate.core.ids import new_id
from tidegate.primitives.gate import Admitted, Allowance, CredentialLimits, Gate, Job, settlement
from tidegate.primitives.stream import Consumer, Stream
from tidegate.storage.valkey import Valkey

JOBS, BATCH = 100_000, 100
FEW, MANY = 10, 100_000
PLENTY = 10**9
_NOTE = (
    "Offer all, then read and settle batches of 100 until nothing is left; one pool; the best of three rounds. "
    "Jobs are named by ascending numbers, as collection names them; names that do not ascend make 100,000 lanes dearer "
    "(1.27x was seen), since their places in the line are then scattered."
)
LIMITS = CredentialLimits(concurrency=400, per_minute=PLENTY, floor=0)


async def measure() -> Section:
    with tcp_server() as url:
        # In turns, so that other load of the machine affects both.
        rounds = [(await _rate(url, FEW), await _rate(url, MANY)) for _ in range(3)]
    few, many = max(few for few, _ in rounds), max(many for _, many in rounds)
    ratio = few / many
    figures = [
        Figure(f"{JOBS:,} jobs of {FEW} lanes", f"{few:,.0f} jobs/s", "≥ 20,000", few >= 20_000),
        Figure(f"{JOBS:,} jobs of {MANY:,} lanes", f"{many:,.0f} jobs/s"),
        Figure(f"cost per job, {MANY:,} lanes / {FEW} lanes", f"{ratio:.2f}x", "≤ 1.0x", ratio <= 1.0),
    ]
    return Section("Gate", figures, _NOTE)


async def _rate(url: str, lanes: int) -> float:
    valkey = await Valkey.connect(url)
    await valkey.execute("FLUSHALL")
    unit = valkey.unit(new_id())
    stream = Stream(valkey, unit, "jobs")
    group = stream.settings.group
    gate = Gate(valkey, unit, stream=stream.keys.stream, group=group, wake=unit.key("wake"))
    await gate.register("token", pool="pool", limits=LIMITS)
    # Named as collection names them: by their numbers in SQL.
    jobs = [Job(job=str(1_000_000 + n), pool="pool", run=str(n % lanes)) for n in range(JOBS)]
    began = time.perf_counter()
    await gate.enqueue(jobs)
    left = JOBS - sum(await asyncio.gather(*(_work(stream.consumer(f"bench-{n}"), gate) for n in range(2))))
    rate = JOBS / (time.perf_counter() - began)
    await valkey.close()
    assert left == 0, "every job came out once"
    return rate


async def _work(consumer: Consumer, gate: Gate) -> int:
    """Two of these overlap: one prepares its batch while the server works on the other's."""
    done, said = 0, Allowance(limit=PLENTY, remaining=PLENTY, window=1, resets_in_ms=3_600_000)
    while messages := await consumer.read(BATCH, within_s=0.2):
        admitted = [Admitted.from_fields(m.id, m.fields, m.deliveries) for m in messages]
        done += (await gate.settle([settlement(one, allowance=said) for one in admitted])).settled
        consumer.settled(one.message for one in admitted)
    return done
