"""Jobs whose secret cannot be had now."""

from datetime import timedelta

from tests.engine.batches import begun, claimed, write
from tidegate.core.errors import Unavailable
from tidegate.engine.calls import from_missing_secret
from tidegate.engine.job_store import Claim, JobResult
from tidegate.engine.lifecycle import JobState
from tidegate.primitives.gate import Admitted
from tidegate.storage.sql import Database


def lacking(claim: Claim, database: Database) -> JobResult:
    admitted = Admitted(
        message=f"{claim.fence}-0",
        job=str(claim.job.id),
        permit="permit",
        credential="librarian",
        bucket="core",
        cost=1,
        turned=0,
        payload="",
        deliveries=1,
    )
    return from_missing_secret(claim, admitted, Unavailable("the token is elsewhere"), database.clock.now())


async def test_a_job_whose_token_only_others_have_waits_with_growing_pauses_of_at_most_a_minute(database: Database):
    _, (job_id,) = await begun(database)
    pauses: list[timedelta] = []
    for _ in range(7):
        (claim,) = await claimed(database, job_id)
        assert claim.attempt == 1, "none of them is an attempt"
        result = lacking(claim, database)
        assert (result.state, result.reason) == (JobState.READY, "the token is elsewhere")
        assert result.not_before is not None
        pauses.append(result.not_before - database.clock.now())
        await write(database, [result])

    for ceiling, pause in zip((5, 10, 20, 40, 60, 60, 60), pauses, strict=True):
        assert timedelta(seconds=ceiling * 0.75) < pause <= timedelta(seconds=ceiling)
