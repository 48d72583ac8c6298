"""An answer that was interrupted tells what its beginning said of the credential, and nothing else."""

from datetime import UTC, datetime

import msgspec
import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from tests.engine.shelf import HOST, LIMIT, ShelfSource, ShelfUpstream
from tidegate.core.clock import SystemClock
from tidegate.engine.calls import CallRoute, Calls
from tidegate.engine.job_store import Claim, JobResult, StoredJob
from tidegate.engine.lifecycle import JobState
from tidegate.engine.source import JobSpec, Reading, Task
from tidegate.engine.upstream import Answer, Head, Request, Truncated
from tidegate.primitives.gate import Admitted, Outcome

PATH = "/users/ada"


class Secrets:
    async def secret_of(self, credential: str) -> str:
        return credential


def truncated(status: int, **headers: str) -> Truncated:
    lines = CIMultiDictProxy(CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()}))
    head = Head(status=status, headers=lines, url=HOST + PATH, received_at=datetime.now(UTC))
    return Truncated(Request(url=HOST + PATH, purpose="USER"), "the body ended too early", was_sent=True, head=head)


class Guessing(ShelfSource):
    """Does not know how long to rest."""

    def read(self, task: Task, answer: Answer) -> Reading:
        return msgspec.structs.replace(super().read(task, answer), is_guess=True)


async def finished(trouble: int | Exception, source: ShelfSource | None = None) -> JobResult:
    """What comes of the one call of a job that ends so."""
    upstream = ShelfUpstream({})
    upstream.trouble[PATH].append(trouble)
    calls = Calls({"shelves": source or ShelfSource()}, CallRoute(upstream, Secrets()), SystemClock())
    job = StoredJob(1, 1, "pool", JobSpec(kind="USER", resource="user:ada", params={"path": PATH}))
    claim = Claim(job, "shelves", "ada", fence=1, attempt=1, max_attempts=5, cursor=None)
    admitted = Admitted(
        message="1-0", job="1", permit="1", credential="c", bucket="core", cost=1, turned=0, payload="", deliveries=1
    )
    return await calls.make(claim, admitted)


async def test_a_refusal_with_an_interrupted_body_is_a_refusal():
    one = await finished(truncated(429, x_remaining="7"))
    settled = one.settlement
    assert (settled.outcome, settled.limit, settled.remaining, settled.blocked_ms) == (Outcome.ANSWERED, LIMIT, 7, 50)
    assert (one.state, one.is_attempt, one.calls) == (JobState.READY, True, 1)


@pytest.mark.parametrize("refusal", [429, truncated(429, x_remaining="7")])
async def test_a_refusal_without_a_duration_is_marked_as_a_guess(refusal: int | Exception):
    assert (await finished(refusal, Guessing())).settlement.is_guess
    assert not (await finished(refusal)).settlement.is_guess


@pytest.mark.parametrize("status", [304, 401, 404])
async def test_an_interrupted_refusal_does_not_decide_the_job(status: int):
    one = await finished(truncated(status, x_remaining="7"))
    assert (one.state, one.cursor, one.unchanged_calls) == (JobState.READY, None, 0)
    assert (one.settlement.remaining, one.settlement.retired) == (7, False)


async def test_a_call_with_an_unreadable_start_counts_as_spent():
    one = await finished(truncated(429))
    assert (one.settlement.outcome, one.settlement.window) == (Outcome.UNKNOWN, None)
    assert one.state is JobState.READY
