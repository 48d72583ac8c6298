"""One of several processes at a paced host: `-m tests.primitives.gate.paced_process URL UNIT OWNER JOBS work|hang`.

Makes calls until all jobs are done, and writes down when each began and ended, by the server's clock, and how many were
under way. One that hangs says so with its first permit, and does nothing more.
"""

import asyncio
import sys

from tests.primitives.gate.harness import GROUP
from tidegate.primitives.gate import Admitted, Gate, settlement
from tidegate.primitives.stream import Stream
from tidegate.storage.valkey import Unit, Valkey
from tidegate.storage.valkey.connection import connected


async def main(url: str, unit_name: str, owner: str, count: int, hangs: bool) -> None:
    async with connected(url) as valkey:
        unit = valkey.unit(unit_name)
        stream = Stream(valkey, unit, "jobs")
        gate = Gate(valkey, unit, stream=stream.keys.stream, group=GROUP, wake=unit.key("wake"))
        consumer = stream.consumer(owner)
        while await valkey.execute("SCARD", unit.key("done")) < count:
            for message in await consumer.read(5, within_s=0.2):
                admitted = Admitted.from_fields(message.id, message.fields, message.deliveries)
                if hangs:
                    print("holding", admitted.job, flush=True)
                    await asyncio.Event().wait()
                await _call(valkey, unit, admitted)
                await gate.settle([settlement(admitted)])
                consumer.settled([message.id])


async def _call(valkey: Valkey, unit: Unit, admitted: Admitted) -> None:
    began = await valkey.execute("TIME")
    under_way = await valkey.execute("INCR", unit.key("under-way"))
    await valkey.execute("SADD", unit.key("done"), admitted.job)
    await valkey.execute("DECR", unit.key("under-way"))
    ended = await valkey.execute("TIME")
    seen = " ".join(f"{int(seconds) * 10**6 + int(us)}" for seconds, us in (began, ended))
    await valkey.execute("RPUSH", unit.key("calls"), f"{seen} {under_way}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5] == "hang"))
