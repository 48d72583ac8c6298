"""The jobs of a source go to processes that know it, and to no others."""

import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.engine.cell_process import NamedShelfSource, tokens_of
from tests.engine.conftest import POOL
from tests.engine.shelf import ShelfSource, ShelfUpstream
from tests.engine.test_crash import ROOT, serve, start, until_all_complete
from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_folder
from tests.waiting import until
from tidegate.engine.cells import why_waiting
from tidegate.engine.collection import Collection, open_sources
from tidegate.engine.lifecycle import RunState
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.source import Subject
from tidegate.settings import Settings

LEASE_MS = "1000"
BOOKSHOP = "bookshop"

pytestmark = pytest.mark.crash


async def start_knowing(source: str, data_dir: Path, url: str) -> WarmProcess:
    command = (sys.executable, "-m", "tests.engine.cell_process", source, str(data_dir), url, LEASE_MS)
    process = await start_warm(*command, stdout=PIPE, cwd=ROOT)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def collect_with_the_others(collection: Collection, login: str) -> None:
    """A run of the source that the other process knows: when it is complete, that process led and read its jobs."""
    parts = collection.parts
    orchestrator = Orchestrator(parts.database, parts.gate, {"shelves": ShelfSource()})
    run_id = await orchestrator.begin("shelves", Subject(user_id=login, login=login), pool=POOL)
    await until_all_complete(parts.database, [run_id])


async def test_jobs_wait_for_a_process_with_their_source_and_survive_its_end(tmp_path: Path):
    theirs, ours = ShelfUpstream({"zoe-shelf": 4}), ShelfUpstream({f"ada-shelf{n}": 40 for n in range(4)})
    (their_runner, their_url), (our_runner, our_url) = await serve(theirs), await serve(ours)
    source, data_dir = NamedShelfSource(BOOKSHOP, our_url), await migrated_folder(tmp_path)
    other = await start(data_dir, their_url)
    async with open_sources(Settings(data_dir=data_dir), [source], tokens_of(BOOKSHOP)) as collection:
        run_id = await collection.begin(BOOKSHOP, Subject(user_id="ada", login="ada"))
        await collect_with_the_others(collection, "zoe")
        other.kill()
        await other.wait()
        other = await start(data_dir, their_url)  # which leads anew, and recovers everything it knows
        await collect_with_the_others(collection, "zoe")

        run = await collection.show(run_id)
        assert (run.status, run.calls, run.failed_jobs) == (RunState.PLANNING, 0, 0)
        assert await why_waiting(collection.parts, [run]) == {run_id: "no process knows the source 'bookshop'"}
        assert ours.calls.total() == 0

        first = await start_knowing(BOOKSHOP, data_dir, our_url)
        await until(lambda: ours.calls.total() >= 20)
        assert await why_waiting(collection.parts, [run]) == {}
        first.kill()
        await first.wait()
        unfinished = await collection.show(run_id)

        second = await start_knowing(BOOKSHOP, data_dir, our_url)
        (ended,) = await until_all_complete(collection.parts.database, [run_id])
        pages = 4 * 40 // ours.per_page
        assert unfinished.status is not RunState.COMPLETED
        assert (ended.total_jobs, ended.succeeded_jobs) == (1 + pages, 1 + pages)
        assert await collection.documents.of(BOOKSHOP).count("item") == 160
        assert await collection.documents.of("shelves").count("item") == 4
        for process in (other, second):
            process.terminate()
            assert await process.wait() == 0
    for runner in (their_runner, our_runner):
        await runner.cleanup()
