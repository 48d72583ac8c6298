"""Rounds that would have little to do wait for more, and those that have plenty wait for nothing."""

import asyncio

import msgspec
import pytest

from tests.engine.batches import begun, claimed, finished, shelf_job
from tests.engine.conftest import Library
from tests.waiting import patience
from tidegate.engine import committer as committer_module
from tidegate.engine.commit_batch import CommitBatch, CommitPolicy
from tidegate.engine.committer import Committer
from tidegate.engine.gate_sync import Recovery
from tidegate.engine.job_store import Claim, JobResult
from tidegate.storage.documents import Document

PLENTY = committer_module._PLENTY  # pyright: ignore[reportPrivateUsage]


def result(claim: Claim, *, with_document: bool) -> JobResult:
    document = Document.of("item", str(claim.job.id), owner="ada", resource="shelf", body={})
    return msgspec.structs.replace(finished(claim), documents=[document] if with_document else [])


@pytest.mark.parametrize("with_document", [False, True])
async def test_the_first_result_is_written_immediately_and_the_next_ones_together(
    local: Library, monkeypatch: pytest.MonkeyPatch, with_document: bool
):
    monkeypatch.setattr(committer_module, "_PACE_S", 3600)
    sizes: list[int] = []
    write_batch = committer_module.write_batch

    def counting(tx: object, this: CommitBatch, policy: object) -> object:
        sizes.append(len(this.finished))
        return write_batch(tx, this, policy)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(committer_module, "write_batch", counting)
    parts, database = local.parts, local.parts.database
    following = PLENTY + with_document  # a first one of these is staged, and the others behind it together
    _, job_ids = await begun(database, specs=[shelf_job(f"shelf {n}") for n in range(1 + following)])
    claims = await claimed(database, *job_ids)
    committer = Committer(
        database,
        parts.gate,
        local.documents,
        parts.jobs.consumer("test"),
        Recovery(database, parts.gate),
        policy=CommitPolicy(),
    )
    stopping = asyncio.Event()
    running = asyncio.create_task(committer.run(stopping))
    async with patience():
        await committer.finish(result(claims[0], with_document=with_document))
        await committer.settled()
        assert sizes == [1], "nothing to wait for"
        for claim in claims[1:]:
            await committer.finish(result(claim, with_document=with_document))
            await asyncio.sleep(0)
        await committer.settled()
        stopping.set()
        await running

    assert sizes == ([1, 1, PLENTY] if with_document else [1, PLENTY])
