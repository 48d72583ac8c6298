"""Jobs with an answer that is already known: a free call replaces their own call.

GitHub Enterprise may have no limits, and then answers the free call with 404, which is treated like a success.
"""

import msgspec

from tidegate.engine.source import Reading, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.systems.github import commits, kinds, limits, reviews
from tidegate.systems.github.requests import FREE, GithubCall
from tidegate.systems.github.states import WithheldRepository


def stands_in(task: Task) -> bool:
    """Whether the free call replaces the job's own call."""
    # A withheld list has no other cursor, so the checks below do not apply to it.
    if WithheldRepository.stored_for(task) is not None:
        return WithheldRepository.valid_refusal(task) is not None
    match task.spec.kind:
        case kinds.REPO_COMMITS:
            return commits.is_known_empty(task)
        case kinds.REPO_REVIEWS:
            return reviews.needs_no_query(task)
        case _:
            return False


def ask(_task: Task) -> GithubCall:
    """Build the free call."""
    return GithubCall(path=FREE)


def read(task: Task, answer: Answer, _following: str | None) -> Reading:
    """Report the allowance of the bucket for which the job waited."""
    bucket = task.spec.bucket
    return msgspec.structs.replace(
        unchanged(task, answer), allowance=limits.allowance_of(answer, bucket), allowance_bucket=bucket
    )


def unchanged(task: Task, _answer: Answer) -> Reading:
    """Complete the job: nothing is new, another job requests what is new, or the list is still withheld."""
    if (refusal := WithheldRepository.valid_refusal(task)) is not None:
        return Reading(verdict=Verdict.UNAVAILABLE, reason=refusal.reason)
    return reviews.check_result(task) if task.spec.kind == kinds.REPO_REVIEWS else Reading()


def refused(task: Task, answer: Answer) -> Reading | None:
    """Handle a 404: there are no limits. Any other answer refers to the free call and has its usual meaning."""
    return unchanged(task, answer) if answer.status == 404 else None
