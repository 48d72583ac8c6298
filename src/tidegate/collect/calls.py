"""One job, one call: the source makes the request and reads the answer, and nothing that goes wrong gets further."""

from collections.abc import Mapping
from typing import Protocol

from tidegate.collect.ledger import Claim
from tidegate.collect.refusals import Secrets, from_lack, heed
from tidegate.collect.source import Reading, Source, Task, Verdict
from tidegate.collect.verdicts import (
    Finished,
    from_defect,
    from_failure,
    from_parked,
    from_poison,
    from_reading,
    from_success,
)
from tidegate.flow.gate import Admitted
from tidegate.kernel.clock import Clock
from tidegate.kernel.errors import TidegateError
from tidegate.telemetry.logs import get_logger
from tidegate.upstream import Answer, Head, Redirect, Request, UpstreamFailed

log = get_logger(__name__)

_MOST_DELIVERIES = 5
"""A job that was with so many workers, all of which died, is not given to another."""


class Caller(Protocol):
    """Whoever makes the calls."""

    async def fetch(self, request: Request) -> Answer:
        """One call, one answer; raises `UpstreamFailed`."""
        ...


class Calls:
    """Works on claimed jobs."""

    def __init__(self, sources: Mapping[str, Source], caller: Caller, secrets: Secrets, clock: Clock) -> None:
        self._sources, self._caller, self._secrets, self._clock = sources, caller, secrets, clock

    async def make(self, claim: Claim, admitted: Admitted) -> Finished:
        """Work on one job, and say what came of it."""
        if admitted.deliveries > _MOST_DELIVERIES:
            return from_poison(claim, admitted)
        if claim.parked is not None:
            return self._read_again(claim, admitted)
        try:
            secret = await self._secrets.secret_of(admitted.credential)
        except TidegateError as lack:
            return from_lack(claim, admitted, lack, self._clock.now())
        return await self._call(claim, admitted, secret)

    async def _call(self, claim: Claim, admitted: Admitted, secret: str) -> Finished:
        task, calls = _task(claim, admitted.credential), 0
        try:
            source = self._sources[claim.source]
            request = source.request(task, secret)
            calls = 1
            answer = await self._caller.fetch(request)
            calls = answer.calls
            reading = source.read(task, answer)
            if reading.verdict is Verdict.DONE:
                return from_success(claim, admitted, reading, answer)
            reading = await heed(reading, self._secrets, admitted.credential, secret)
            return from_reading(claim, admitted, reading, answer, self._clock.now())
        except UpstreamFailed as failure:
            return from_failure(claim, admitted, failure, self._clock.now(), self._said(claim.source, task, failure))
        except Exception as error:
            return self._defect(claim, admitted, error, calls)

    def _said(self, source: str, task: Task, failure: UpstreamFailed) -> Reading | None:
        """What an interrupted answer said: it is read as one with an empty body, as far as that can be read."""
        if failure.head is None:
            return None
        try:
            return self._sources[source].read(task, _without_body(failure.head, failure.redirects))
        except Exception:  # many a body must not be empty; that the call failed is told anyway
            return None

    def _read_again(self, claim: Claim, admitted: Admitted) -> Finished:
        """The answer is there; whoever got it counts as the reader."""
        assert claim.parked is not None
        try:
            answer = Answer.unpack(claim.parked.answer)
            reading = self._sources[claim.source].read(_task(claim, claim.parked.credential), answer)
            return from_parked(claim, admitted, reading, answer)
        except Exception as error:
            return self._defect(claim, admitted, error, 0)

    def _defect(self, claim: Claim, admitted: Admitted, error: Exception, calls: int) -> Finished:
        kind, job = claim.job.spec.kind, claim.job.id
        log.error("collect.source_failed", source=claim.source, kind=kind, job=job, exc_info=error)
        return from_defect(claim, admitted, error, self._clock.now(), calls=calls)


def _without_body(head: Head, redirects: tuple[Redirect, ...]) -> Answer:
    return Answer(
        status=head.status,
        headers=head.headers,
        url=head.url,
        received_at=head.received_at,
        body=b"",
        redirects=redirects,
        elapsed_ms=0.0,
    )


def _task(claim: Claim, credential: str) -> Task:
    return Task(
        spec=claim.job.spec,
        run_id=claim.job.run_id,
        user_id=claim.user_id,
        credential=credential,
        attempt=claim.attempt,
        cursor=claim.cursor,
    )
