"""What happens to a job whose secret cannot be had, or is refused by the upstream."""

from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

import msgspec

from tidegate.core.backoff import Backoff
from tidegate.core.errors import NoCredential, TidegateError, Unavailable
from tidegate.engine.job_results import PAUSES, JobResult, from_defect
from tidegate.engine.job_store import Claim, Ending
from tidegate.engine.lifecycle import JobState
from tidegate.engine.source import Reading, Verdict
from tidegate.primitives.gate import Admitted, Outcome, settlement

_ASK_AGAIN = Backoff(first=timedelta(seconds=5), most=timedelta(minutes=1), jitter=0.2)


class Secrets(Protocol):
    """Whoever knows what belongs to a credential."""

    async def secret_of(self, credential: str, /) -> str:
        """The secret itself, to be sent and forgotten.

        Raises `NoCredential` where there is none any more, `Unavailable` where it cannot be had now.
        """
        ...


@runtime_checkable
class ReplaceableSecrets(Secrets, Protocol):
    """Secrets of which a credential may have several, one after the other."""

    async def rejected(self, credential: str, secret: str, reason: str, /) -> bool:
        """The upstream refused `secret`: it is used no more. True if there is another one for the same credential."""
        ...


async def heed(reading: Reading, secrets: Secrets, credential: str, secret: str) -> Reading:
    """What an answer means once a refused secret was reported.

    Where another secret spends the same allowance, or the refused one was replaced meanwhile, the call is simply made
    again, and costs no attempt. Otherwise the credential is retired, and the job goes to another one of its pool.
    """
    if reading.verdict is not Verdict.UNAUTHORIZED or not isinstance(secrets, ReplaceableSecrets):
        return reading
    if not await secrets.rejected(credential, secret, reading.reason):
        return reading
    return msgspec.structs.replace(reading, verdict=Verdict.LATER, delay_ms=0)


def from_lack(
    claim: Claim, admitted: Admitted, lack: TidegateError, now: datetime, *, pauses: Backoff = PAUSES
) -> JobResult:
    """The call was not made, for want of a secret.

    Where there is none any more, the gate retires the credential, and the job goes to another one. Where it cannot be
    had now, it is asked for a little later, and then after growing pauses: nobody may ever have it. Neither is an
    attempt of the job's. Anything else, such as a key that does not fit, does not pass by itself: tried again a limited
    number of times.
    """
    match lack:
        case NoCredential():
            again_at = None
        case Unavailable():
            uncounted = claim.fence - claim.attempt  # times that it was claimed and no attempt came of it
            again_at = now + _ASK_AGAIN.delay(max(0, uncounted) + 1)
        case _:
            return from_defect(claim, admitted, lack, now, pauses=pauses)
    ending = Ending(
        claim=claim,
        state=JobState.READY,
        reason=str(lack),
        not_before=again_at,
        is_attempt=False,
        credential=admitted.credential,
    )
    unused = settlement(admitted, Outcome.UNUSED, retired=isinstance(lack, NoCredential))
    return JobResult(ending=ending, settlement=unused)
