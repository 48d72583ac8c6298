"""Nothing to ask for: what a job is about is known already, so a call that costs nothing stands in for its own.

A GitHub of one's own may have no limits, and then not this call either. Its 404 says as much as an answer would.
"""

import msgspec

from tidegate.engine.source import Reading, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.systems.github import commits, kinds, limits, reviews
from tidegate.systems.github.requests import FREE, GithubCall
from tidegate.systems.github.states import WithheldRepository


def stands_in(task: Task) -> bool:
    """Whether the free call is made in the place of the job's own."""
    if WithheldRepository.left_for(task) is not None:
        return WithheldRepository.believed(task) is not None
    match task.spec.kind:
        case kinds.REPO_COMMITS:
            return commits.is_known_empty(task)
        case kinds.REPO_REVIEWS:
            return reviews.needs_no_query(task)
        case _:
            return False


def ask(_task: Task) -> GithubCall:
    """The free call."""
    return GithubCall(path=FREE)


def read(task: Task, answer: Answer, _following: str | None) -> Reading:
    """Of allowances, the one that the job waited for is told."""
    bucket = task.spec.bucket
    return msgspec.structs.replace(
        unchanged(task, answer), allowance=limits.allowance_of(answer, bucket), allowance_bucket=bucket
    )


def unchanged(task: Task, _answer: Answer) -> Reading:
    """Nothing is new, or what is new is asked for by another job; or it is still withheld."""
    if (refusal := WithheldRepository.believed(task)) is not None:
        return Reading(verdict=Verdict.UNAVAILABLE, reason=refusal.reason)
    return reviews.looked_up(task) if task.spec.kind == kinds.REPO_REVIEWS else Reading()


def refused(task: Task, answer: Answer) -> Reading | None:
    """404: there are no limits here. Any other answer is about the free call, and means what it always does."""
    return unchanged(task, answer) if answer.status == 404 else None
