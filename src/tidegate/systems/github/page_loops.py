"""Detects pages of a list that link in a circle, so that they do not spend the whole window.

This is Brent's algorithm: the request of a page is the anchor until twice as many pages were read, and a page that
links to the request of the anchor closes a circle. A job carries one digest and one number, however long its list is; a
circle of n pages that begins after m pages is found within four times the larger of both.
"""

from hashlib import blake2b

import msgspec

from tidegate.engine.source import JobSpec, Task
from tidegate.systems.github.requests import GithubCall

_TRAIL = "trail"
"""The parameter of a job that has the trail; no state of a reader has a field of this name."""
_PASSES = ("lap", "is_second")
"""Parameters that differ when a list is deliberately read again from its beginning."""
_DIGEST_BYTES = 8


class PageTrail(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many pages of a list were read before this one, and the digest of the request of one of them."""

    pages: int = 0
    anchor: str = ""

    @classmethod
    def of(cls, task: Task, call: GithubCall) -> "PageTrail":
        """The trail up to and including the page of this job."""
        before = msgspec.convert(task.spec.params.get(_TRAIL, {}), cls)
        number = before.pages + 1
        is_power_of_two = number & (number - 1) == 0
        return cls(number, _digest(task.spec, call) if is_power_of_two else before.anchor)

    def leads_back(self, following: JobSpec, call: GithubCall) -> bool:
        """Whether the next page is one that was read before."""
        return _digest(following, call) == self.anchor

    def stored_in(self, following: JobSpec) -> JobSpec:
        """The job of the next page, with this trail."""
        return msgspec.structs.replace(following, params={**following.params, _TRAIL: msgspec.to_builtins(self)})


def is_next_page(following: JobSpec, task: Task) -> bool:
    """Whether a job reads the same list as the job that it follows."""
    return (following.kind, following.resource) == (task.spec.kind, task.spec.resource)


def _digest(spec: JobSpec, call: GithubCall) -> str:
    passes = [spec.params.get(name) for name in _PASSES]
    request = msgspec.json.encode([spec.bucket, call.path, call.query, call.variables, passes])
    return blake2b(request, digest_size=_DIGEST_BYTES).hexdigest()
