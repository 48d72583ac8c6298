"""A small simulator on the fast event loop, in a process of its own; it says where, and serves until it is killed."""

import asyncio
import json
import sys

import uvloop

from tidegate_simulators.game import Behaviour, GameConfig, GameSimulator, LimitSettings, WorldShape


async def serve(body_bytes: int, idle_s: float) -> None:
    world = WorldShape(missing=0, body_bytes=body_bytes, kept_bytes=8_000)
    behaviour = Behaviour(idle_s=idle_s, hang_s=0, drip_s=0.2)
    config = GameConfig(world=world, limits=LimitSettings(per_second=10**9), behaviour=behaviour)
    async with GameSimulator(config) as simulator:
        print(json.dumps({"url": simulator.url, "api_key": simulator.api_key}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), float(sys.argv[2])))
