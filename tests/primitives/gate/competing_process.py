"""One of several processes at one gate: `-m tests.primitives.gate.competing_process URL UNIT OWNER JOBS PROCESSES`.

Offers all jobs, as every other one does, and settles what it gets until all are done. Prints the jobs it settled.
"""

import asyncio
import sys

from tests.primitives.gate.harness import GROUP, PLENTY
from tidegate.primitives.gate import Admitted, Allowance, Gate, Job, settlement
from tidegate.primitives.stream import Stream
from tidegate.storage.valkey.connection import connected


async def main(url: str, unit_name: str, owner: str, count: int, processes: int) -> None:
    async with connected(url) as valkey:
        unit = valkey.unit(unit_name)
        stream = Stream(valkey, unit, "jobs")
        gate = Gate(valkey, unit, stream=stream.keys.stream, group=GROUP, wake=unit.key("wake"))
        await gate.register("token", pool="pool", limits=PLENTY.model_copy(update={"concurrency": 20}))
        await gate.enqueue([Job(job=f"job-{n}", pool="pool", run=f"run-{n % 5}") for n in range(count)])
        # All have offered before anybody settles: a job that is offered after its end is a new one.
        if await valkey.execute("INCR", unit.key("offered")) == processes:
            await valkey.execute("RPUSH", unit.key("go"), *["1"] * processes)
        await valkey.execute_blocking("BLPOP", unit.key("go"), 30, within_s=30)
        consumer = stream.consumer(owner)
        said = Allowance(limit=10**6, remaining=10**6, window=4_000_000_000, resets_in_ms=3_600_000)
        while await valkey.execute("SCARD", unit.key("done")) < count:
            messages = await consumer.read(10, within_s=0.2)
            admitted = [Admitted.from_fields(m.id, m.fields, m.deliveries) for m in messages]
            status = (await gate.status("pool")).credentials[0]
            assert status.in_flight <= status.concurrency
            for one in admitted:
                print(one.job, await valkey.execute("SADD", unit.key("done"), one.job), flush=True)
            await gate.settle([settlement(one, allowance=said) for one in admitted])
            consumer.settled(one.message for one in admitted)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
