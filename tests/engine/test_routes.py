"""Sources whose calls are made by others, and callers who would not make a call."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from structlog.testing import capture_logs

from tests.engine.shelf import HOST, ShelfSource, ShelfUpstream
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument
from tidegate.engine.calls import CallRoute, Calls, NotCalled, UpstreamCalls
from tidegate.engine.job_store import Claim, JobResult, StoredJob
from tidegate.engine.lifecycle import JobState
from tidegate.engine.source import JobSpec, Reading, Task, Verdict
from tidegate.engine.upstream import Answer, Head, Permit, Request, Truncated
from tidegate.primitives.gate import Admitted, Outcome

PATH = "/users/ada"
ADMITTED = Admitted(
    message="1-0", job="1", permit="1", credential="c", bucket="host", cost=1, turned=0, payload="", deliveries=1
)


class Secrets:
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    async def secret_of(self, credential: str) -> str:
        return self._prefix + credential


class Refusing:
    """Makes no call."""

    def __init__(self, refusal: Exception) -> None:
        self._refusal = refusal

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        del request
        raise self._refusal


class Resting(ShelfSource):
    """An upstream that says how long this one, and how long everybody, must rest."""

    def read(self, task: Task, answer: Answer) -> Reading:
        del task, answer
        return Reading(verdict=Verdict.LATER, blocked_ms=1000, is_guess=True, rests_bucket=True, pause_ms=7000)


def claim_of(source: str = "shelves") -> Claim:
    job = StoredJob(1, 1, "pool", JobSpec(kind="USER", resource="user:ada", params={"path": PATH}))
    return Claim(job, source, "ada", fence=1, attempt=1, max_attempts=5, cursor=None)


async def made(caller: UpstreamCalls, clock: ManualClock, source: ShelfSource | None = None) -> JobResult:
    calls = Calls({"shelves": source or ShelfSource()}, CallRoute(caller, Secrets("")), clock)
    return await calls.make(claim_of(), ADMITTED)


async def test_each_source_uses_its_own_call_route(clock: ManualClock):
    usual, own = ShelfUpstream({}), ShelfUpstream({})
    sources: dict[str, Any] = {"shelves": ShelfSource(), "attic": ShelfSource()}
    calls = Calls(
        sources, CallRoute(usual, Secrets("usual ")), clock, routes={"attic": CallRoute(own, Secrets("own "))}
    )

    for name in ("shelves", "attic"):
        assert (await calls.make(claim_of(name), ADMITTED)).state is JobState.SUCCEEDED
    unknown_caller = await calls.make(claim_of("stranger"), ADMITTED)

    assert (usual.callers[PATH], own.callers[PATH]) == (["token usual c"], ["token own c"])
    assert (unknown_caller.state, unknown_caller.reason) == (JobState.READY, "KeyError: 'stranger'")


async def test_a_postponed_call_counts_no_attempt_and_returns_its_permit(clock: ManualClock):
    one = await made(Refusing(NotCalled(Verdict.LATER, "not yet", delay_ms=1500, pause_ms=9000)), clock)

    ending, settled = one, one.settlement
    assert (ending.state, ending.is_attempt, ending.reason, ending.calls) == (JobState.READY, False, "not yet", 0)
    assert ending.not_before is not None
    assert (ending.not_before - clock.now()).total_seconds() == 1.5
    assert (settled.outcome, settled.pause_ms, settled.blocked_ms) == (Outcome.UNUSED, 9000, None)


async def test_calls_made_instead_are_counted_and_the_permit_is_spent(clock: ManualClock):
    one = await made(Refusing(NotCalled(Verdict.LATER, "robots.txt was read first", delay_ms=0, calls=1)), clock)

    assert (one.calls, one.not_before, one.is_attempt) == (1, clock.now(), False)
    assert one.settlement.outcome is Outcome.ANSWERED


async def test_a_forbidden_call_fails_its_job(clock: ManualClock):
    one = await made(Refusing(NotCalled(Verdict.UNAVAILABLE, "robots.txt forbids it")), clock)

    assert (one.state, one.reason) == (JobState.UNAVAILABLE, "robots.txt forbids it")
    assert (one.credential, one.settlement.outcome) == ("c", Outcome.UNUSED)


async def test_a_refused_call_reports_the_requested_pause(clock: ManualClock):
    refusal = NotCalled(Verdict.RETRY, "robots.txt: 429", blocked_ms=3000, is_guess=True, rests_bucket=True, calls=1)
    one = await made(Refusing(refusal), clock)

    assert (one.state, one.is_attempt) == (JobState.READY, True)
    settled = one.settlement
    assert (settled.blocked_ms, settled.is_guess, settled.rests_bucket) == (3000, True, True)


async def test_record_and_reason_of_a_call_contain_no_secret(clock: ManualClock):
    class Keyed(ShelfSource):
        """An upstream that takes the key in the URL, by a name that says nothing of it, and quotes it."""

        def request(self, task: Task, secret: str) -> Request:
            return Request(url=f"http://shelves.test{PATH}?appid={secret}", purpose="shelves")

        def read(self, task: Task, answer: Answer) -> Reading:
            del task
            return Reading(verdict=Verdict.RETRY, reason=f"refused {answer.url}")

    calls = Calls({"shelves": Keyed()}, CallRoute(ShelfUpstream({}), Secrets("hunter2-")), clock)
    one = await calls.make(claim_of(), ADMITTED)

    assert one.call is not None
    assert one.call.url == f"http://shelves.test{PATH}?appid=***"
    assert one.reason == f"refused http://shelves.test{PATH}?appid=***"


async def test_the_log_of_a_failed_source_contains_no_secret(clock: ManualClock):
    class Failing(ShelfSource):
        """Quotes its secret in an error."""

        def request(self, task: Task, secret: str) -> Request:
            raise ValueError(f"{secret!r} is not a number")

    calls = Calls({"shelves": Failing()}, CallRoute(ShelfUpstream({}), Secrets("hunter2-")), clock)
    with capture_logs() as lines:
        one = await calls.make(claim_of(), ADMITTED)

    [line] = [line for line in lines if line["event"] == "collect.source_failed"]
    assert "ValueError: '***' is not a number" in line["exception"]
    assert "hunter2" not in str(line) + one.reason


def test_a_call_that_was_not_made_cannot_have_a_result():
    with pytest.raises(InvalidArgument, match="has no result"):
        NotCalled(Verdict.DONE, "done")
    with pytest.raises(InvalidArgument, match="must not be negative"):
        NotCalled(Verdict.LATER, "later", calls=-1)


def _whole() -> ShelfUpstream:
    return ShelfUpstream({})


def _broken_off() -> ShelfUpstream:
    upstream, lines = ShelfUpstream({}), CIMultiDictProxy(CIMultiDict[str]())
    head = Head(status=429, headers=lines, url=HOST + PATH, received_at=datetime.now(UTC))
    failure = Truncated(Request(url=HOST + PATH, purpose="USER"), "too early", was_sent=True, head=head)
    upstream.trouble[PATH].append(failure)
    return upstream


@pytest.mark.parametrize("upstream", [_whole, _broken_off])
async def test_a_block_of_the_bucket_is_passed_to_the_gate_also_from_an_interrupted_answer(
    clock: ManualClock, upstream: Callable[[], ShelfUpstream]
):
    settled = (await made(upstream(), clock, Resting())).settlement

    assert (settled.blocked_ms, settled.is_guess, settled.rests_bucket, settled.pause_ms) == (1000, True, True, 7000)


async def test_only_the_gate_holds_back_a_blocked_credential(clock: ManualClock):
    paused = Resting()
    paused.read = lambda task, answer: Reading(verdict=Verdict.LATER, pause_ms=60_000)  # pyright: ignore[reportUnknownLambdaType]
    told = msgspec.structs.replace(Reading(verdict=Verdict.LATER, pause_ms=60_000), delay_ms=500)
    asked = Resting()
    asked.read = lambda task, answer: told  # pyright: ignore[reportUnknownLambdaType]

    assert (await made(_whole(), clock, paused)).not_before is None
    assert (await made(_whole(), clock, asked)).not_before is not None
