"""What a source has to say. It makes requests and reads answers; everything else is done for it.

A source is pure: no clock, no network, no database. It names the first jobs of a run, makes the request for a job, and
reads an answer into documents, further jobs and a cursor. The engine claims, calls, commits, retries and counts.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument
from tidegate.engine.upstream import Answer, Request
from tidegate.primitives.gate import Allowance
from tidegate.storage.documents import Document, Listing

FIRST_PAGE = "first"


class JobSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One call, as the source describes it."""

    kind: str
    resource: str
    """What it is about: `user:octocat`, `repo:owner/name`."""
    page: str = FIRST_PAGE
    """Which page of it; a run has each (kind, resource, page) once."""
    params: dict[str, Any] = {}
    """Whatever the source needs to make the request."""
    bucket: str = "core"
    cost: int = 1
    priority: int = 5
    affinity: str = ""
    owner: str = ""
    """Owner of the documents and of the cursor, for a resource that runs of several subjects reach. Empty: the subject
    of the run."""
    claims: bool = False
    """Whether this job begins the collection of a resource that other runs may be collecting: then it waits until they
    have; see `claims.py`."""
    has_gaps: bool = False
    """An item of an earlier page of this list was skipped, so the list cannot tell what is gone. Set by the engine."""
    redirects: tuple[str, ...] = ()
    """Addresses to which the upstream redirected this call, in order; the engine asks at the last one."""
    followed_by: tuple[str, ...] = ()
    """Kinds of jobs that begin when this one has ended: with its resource and parameters, at the first page.

    They begin whether it succeeded or failed, and not where it found its resource UNAVAILABLE: one call is enough to
    find out that nothing of a resource can be read.
    """
    other_buckets: dict[str, str] = {}
    """Buckets of the kinds in `followed_by` that spend another allowance than this job."""

    @property
    def successors(self) -> "list[JobSpec]":
        """The jobs that `followed_by` names."""
        if not self.followed_by:
            return []
        first = msgspec.structs.replace(
            self,
            page=FIRST_PAGE,
            affinity="",
            claims=False,
            has_gaps=False,
            redirects=(),
            followed_by=(),
            other_buckets={},
        )
        buckets = self.other_buckets
        return [
            msgspec.structs.replace(first, kind=kind, bucket=buckets.get(kind, self.bucket))
            for kind in self.followed_by
        ]

    def __post_init__(self) -> None:
        _require_short("kind", self.kind, 40)
        _require_short("resource", self.resource, 200)
        _require_short("page", self.page, 200)


def _require_short(name: str, value: str, longest: int) -> None:
    require_name(name, value)
    if len(value) > longest:
        raise InvalidArgument(name, value[:32] + "…", f"must have at most {longest} characters")


class Cursor(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Where the last complete run of this user left a resource."""

    cursor: str | None = None
    timestamp: str | None = None
    etag: str | None = None
    credential: str | None = None
    """The credential that got the ETag; it is not valid for another one."""


class Task(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A claimed job, as its source sees it."""

    spec: JobSpec
    run_id: int
    user_id: str
    """The owner of its documents and of its cursor: that of the job, or else the subject of the run."""
    credential: str
    """The credential that makes the call."""
    pool: str = ""
    """The pool of that credential."""
    attempt: int = 1
    """Attempt number, starting at 1."""
    cursor: Cursor | None = None
    """Where the last complete run left the resource; only for first pages."""

    @property
    def etag(self) -> str | None:
        """The ETag of the last run, if it was this credential that got it."""
        if self.cursor is None or self.cursor.credential != self.credential:
            return None
        return self.cursor.etag

    def document(
        self,
        kind: str,
        id: str,  # noqa: A002 - as in `Document.of`
        body: Mapping[str, Any] | msgspec.Raw,
        *,
        version: int | str | None = None,
    ) -> Document:
        """An item of the list that this job reads, collected for its user and seen by its run."""
        return Document.of(
            kind,
            id,
            owner=self.user_id,
            resource=self.spec.resource,
            body=body,
            version=version,
            sweep=self.run_id,
        )

    def listing(self, kind: str) -> Listing:
        """The list that this job has read to its end: what of `kind` it lacks is gone upstream."""
        return Listing(kind, self.spec.resource, self.run_id)

    def next_page(self, page: str, **params: Any) -> JobSpec:
        """A further page of the same list, read with the same allowance, and best by the same credential."""
        return msgspec.structs.replace(
            self.spec,
            page=page,
            params=params,
            affinity=self.credential,
            claims=False,
            redirects=(),
            followed_by=(),
            other_buckets={},
        )


class Verdict(StrEnum):
    """What an answer means for its job."""

    DONE = "done"
    RETRY = "retry"  # a fault that may pass: tried again with growing pauses, a limited number of times
    LATER = "later"  # not ready, or not allowed now: asked again, and it costs no attempt
    GONE = "gone"  # permanent for this resource: recorded with the reason
    UNAVAILABLE = "unavailable"  # the upstream shows it to no credential: recorded with the reason, and no failure
    UNAUTHORIZED = "unauthorized"  # the credential is no good any more
    MOVED = "moved"  # a redirect: asked again at the new address, with a permit of its own; it costs no attempt


class Reading(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What an answer said."""

    verdict: Verdict = Verdict.DONE
    reason: str = ""
    unchanged: bool = False
    """The upstream said that nothing changed, and did not count the call: it was saved."""
    documents: Sequence[Document] = ()
    effects: Sequence[Any] = ()
    """For the source's own `EffectWriter`, whatever the verdict is: written by the transaction that ends the job."""
    completed: Sequence[Listing] = ()
    """Lists that were read from beginning to end, this page being the last: what they lack is gone upstream."""
    skipped: Sequence[str] = ()
    """Items of the list that were left out because they could not be read: the reason for each. See `read_items`."""
    follow_ups: Sequence[JobSpec] = ()
    cursor: Cursor | None = None
    """Where the next run goes on; given only by the page that ends a listing, or that finds it GONE."""
    allowance: Allowance | None = None
    allowance_bucket: str | None = None
    blocked_ms: int | None = None
    """The upstream asked this credential to rest."""
    is_guess: bool = False
    """It did not say how long: `blocked_ms` is the least, and grows where a rest soon follows another."""
    rests_bucket: bool = False
    """The rest is for this credential in this bucket alone; else it is for all that the credential does."""
    pause_ms: int | None = None
    """The upstream asked for a pause of this bucket by all credentials."""
    delay_ms: int | None = None
    """When to ask again, where the answer said so."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a run, and the options of the request."""

    user_id: str
    login: str
    options: Mapping[str, Any] = {}


class Source(Protocol):
    """Knows one upstream: which requests to make, and what the answers mean."""

    @property
    def name(self) -> str:
        """What runs and settings call it."""
        ...

    @property
    def planning_kinds(self) -> frozenset[str]:
        """Kinds of jobs that find other resources: while one is unfinished, the run is being planned."""
        ...

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        """With what a run begins."""
        ...

    def request(self, task: Task, secret: str) -> Request:
        """The call for a job."""
        ...

    def read(self, task: Task, answer: Answer) -> Reading:
        """What the answer means. Pure: the same answer always means the same."""
        ...
