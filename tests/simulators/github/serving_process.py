"""A simulator without limits in a process of its own; it says where, and serves until it is killed."""

import asyncio
import json

import uvloop

from tidegate_simulators.github import GithubSimulator, LimitSettings, SimulatorConfig, WorldShape


async def serve() -> None:
    limits = LimitSettings(quota=10**9, points_per_minute=10**9, cpu_s_per_minute=10**9)
    async with GithubSimulator(SimulatorConfig(world=WorldShape(users=1), limits=limits)) as simulator:
        login = simulator.world.logins()[0]
        greeting = {"url": simulator.url, "logins": [login], "tokens": {login: simulator.token_of(login)}}
        print(json.dumps(greeting), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve())
