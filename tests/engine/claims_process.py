"""`-m tests.engine.claims_process URL SEED ROUNDS`: do what workers, commands and the pruner do to runs, at random.

Every run reaches some of the same few resources. Ends with 1 where two runs were seen at work on one resource.
"""

import asyncio
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from sqlalchemy import func, select

from tests.engine.batches import finished, write
from tidegate.core.errors import TidegateError
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine import claims, runs
from tidegate.engine.job_store import unfinished
from tidegate.engine.lifecycle import OPEN_RUNS, UNFINISHED_JOBS, JobState
from tidegate.engine.retention import delete_ended
from tidegate.engine.source import JobSpec, Subject
from tidegate.engine.tables import collection_runs, page_jobs
from tidegate.storage.sql import Database, Transaction

RESOURCES = [f"shelf:{n}" for n in range(5)]
_AT_ONCE = 6
_run, _job = collection_runs.c, page_jobs.c


def entry(resource: str) -> JobSpec:
    return JobSpec(kind="SHELF", resource=resource, owner="library", claims=True)


def open_runs(tx: Transaction) -> list[int]:
    return list(tx.execute(select(_run.id).where(_run.status.in_(OPEN_RUNS)).order_by(_run.id)).scalars())


def all_runs(tx: Transaction) -> list[int]:
    return list(tx.execute(select(_run.id).order_by(_run.id)).scalars())


def shared_resources(tx: Transaction) -> list[str]:
    """Resources on which several runs are at work."""
    those = select(_job.resource_key).join_from(page_jobs, collection_runs, _run.id == _job.run_id)
    those = those.where(_job.awaits_run.is_(None), _job.status.in_(UNFINISHED_JOBS), _run.status.in_(OPEN_RUNS))
    counted = those.where(_job.owner.is_not(None)).group_by(_job.resource_key)
    return list(tx.execute(counted.having(func.count(_job.run_id.distinct()) > 1)).scalars())


class Player:
    def __init__(self, database: Database, seed: int) -> None:
        self._database, self._seed, self._random = database, seed, random.Random(seed)
        self._begun = 0

    async def play(self, rounds: int) -> list[str]:
        """Returns the resources that several runs collected at once."""
        moves = (self._begin, self._work, self._work, self._work, self._work, self._cancel, self._retry, self._tidy)
        for _ in range(rounds):
            with suppress(TidegateError):  # the run is active, over or gone
                await self._random.choice(moves)()
            if shared := await self._database.read(shared_resources):
                return shared
        return []

    async def finish(self) -> None:
        """End whatever is left."""
        while left := await self._jobs():
            await self._end(left, JobState.SUCCEEDED)
            await self._database.transaction(claims.release_all)

    async def _begin(self) -> None:
        self._begun += 1
        name = f"user-{self._seed}-{self._begun}"
        reached = self._random.sample(RESOURCES, k=self._random.randint(1, 3))
        beginning = runs.NewRun(
            *("shelves", Subject(user_id=name, login=name), self._random.choice(["pool", "gone"]), "manual"),
            [entry(resource) for resource in reached],
        )
        await self._database.transaction(runs.begin, beginning)

    async def _jobs(self) -> list[int]:
        found = await self._database.read(open_runs)
        return [job.id for job in await self._database.read(unfinished, found, 0, 1000)] if found else []

    async def _work(self) -> None:
        jobs = await self._jobs()
        state = self._random.choice([JobState.SUCCEEDED, JobState.SUCCEEDED, JobState.FAILED])
        await self._end(self._random.sample(jobs, k=min(len(jobs), _AT_ONCE)), state)

    async def _end(self, jobs: Sequence[int], state: JobState) -> None:
        mine = (await write(self._database, wanted=jobs)).claimed
        found = [entry(self._random.choice(RESOURCES))] if state is JobState.SUCCEEDED else []
        results = [finished(claim, state, follow_ups=found) for claim in mine.values()]
        await write(self._database, results, wanted=await self._jobs() if self._random.random() < 0.5 else ())

    async def _cancel(self) -> None:
        if self._random.random() < 0.3:
            ended = list(await self._database.transaction(runs.fail_pool, "gone", "no valid credential"))
        else:
            ended = self._random.sample(found, k=1) if (found := await self._database.read(open_runs)) else []
            for run_id in ended:
                await self._database.transaction(runs.cancel, run_id)
        if ended:
            await self._database.transaction(claims.release_late, ended)

    async def _retry(self) -> None:
        for run_id in self._random.sample(found, k=1) if (found := await self._database.read(all_runs)) else []:
            await self._database.transaction(runs.complete, run_id)
            await self._database.transaction(runs.retry_failed, run_id)

    async def _tidy(self) -> None:
        await self._database.transaction(claims.release_all)
        found = await self._database.read(all_runs)
        later = self._database.clock.now() + timedelta(hours=1)
        await self._database.transaction(delete_ended, found[:3], later, 10)


async def main(url: str, seed: int, rounds: int) -> int:
    async with await Database.open(url) as database:
        player = Player(database, seed)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        shared = await player.play(rounds)
        if not shared:
            await player.finish()
    print(f"shared {shared}" if shared else "done", flush=True)
    return 1 if shared else 0


if __name__ == "__main__":
    configure_logs(level="error")
    sys.exit(asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
