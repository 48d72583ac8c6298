"""`-m tests.runtime.starting_together LOGIN`: one of several processes that start at the same moment.

Settings and token come from the environment. The process prints a word after each step and waits for a line before the
next one, so that the test can release all processes together.
"""

import asyncio
import json
import os
import sys

from tests.waiting import look_again
from tidegate.core.errors import TidegateError
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.engine.source import Subject
from tidegate.settings import Settings
from tidegate.systems.github.opening import open_github


async def released(step: str) -> None:
    print(step, flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def main(login: str) -> None:
    await released("loaded")
    async with open_github(Settings.load(), token=os.environ["GITHUB_TOKEN"]) as collection:
        await released("opened")
        process = collection.process()
        running = asyncio.create_task(process.run())
        known = await collection.credential_manager.list()
        try:
            has_token = await collection.credential_manager.secret_of(known[0].allowance) == os.environ["GITHUB_TOKEN"]
        except TidegateError:
            has_token = False
        subject = Subject(user_id=login, login=login)
        run_id = await collection.orchestrator.begin("github", subject, pool=known[0].pool)
        while (run := await collection.orchestrator.show(run_id)).status in ACTIVE_RUNS:
            await look_again()
        found = {"credentials": len(known), "has_token": has_token, "status": run.status, "failed": run.failed_jobs}
        await released(json.dumps(found))
        process.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
