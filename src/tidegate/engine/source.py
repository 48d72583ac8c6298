"""The interface of sources: a source builds requests and reads answers, the engine does everything else.

A source is pure: it uses no clock, no network and no database. It names the first jobs of a run, builds the request of
a job, and reads an answer into documents, further jobs and a cursor. The engine claims, calls, commits and retries.
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
    """The description of a job: one upstream request.

    A run has each combination of `kind`, `resource` and `page` once; a second job with the same combination is not
    added. Raises `InvalidArgument` if one of them is empty or too long (40, 200 and 200 characters).

    Example:
        JobSpec(kind="book_list", resource="subject:history", params={"limit": 100}, bucket="search")
    """

    kind: str
    """Kind of the job, from which the source knows how to build its request: `book_list`."""
    resource: str
    """The resource to read: `user:octocat`, `repo:owner/name`."""
    page: str = FIRST_PAGE
    """The page of the resource."""
    params: dict[str, Any] = {}
    """Further values that the source needs to build the request; stored as JSON."""
    bucket: str = "core"
    """The bucket that the request spends."""
    cost: int = 1
    """Units of quota that the request spends."""
    priority: int = 5
    """From 0 to 9. Of the waiting jobs of a pool, those with a smaller number get permits first."""
    affinity: str = ""
    """The credential that should make the call, if it is available."""
    owner: str = ""
    """Owner of the documents and of the cursor, for a resource that runs of several subjects share. Default: the
    subject of the run."""
    claims: bool = False
    """Whether this job starts the collection of a resource that other runs may be collecting. It then waits until they
    have collected it; see `claims.py`."""
    has_gaps: bool = False
    """Whether an item of an earlier page was skipped, so that missing items cannot be detected. Set by the engine."""
    redirects: tuple[str, ...] = ()
    """URLs to which the upstream redirected this call, in order. The engine requests the last one. They are encrypted,
    because signed URLs are secrets."""
    followed_by: tuple[str, ...] = ()
    """Kinds of jobs that are added when this job has ended, with its resource and parameters, for the first page.

    They are added whether it succeeded or failed, but not if its resource is UNAVAILABLE: their requests would have the
    same result.
    """
    other_buckets: dict[str, str] = {}
    """Buckets of the kinds in `followed_by` that spend another allowance than this job."""

    @property
    def successors(self) -> "list[JobSpec]":
        """Jobs for the first pages of the kinds in `followed_by`, which are read after this list is complete."""
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
    """Where the next run of a user continues a resource, stored when its listing is complete.

    The source defines the meaning of all fields; `task.cursor` returns them to the next run.

    Example:
        cursor = Cursor(timestamp="2026-01-31T12:00:00Z", etag='"abc"', credential="octocat")
        Reading(documents=[], cursor=cursor)
    """

    cursor: str | None = None
    """A position in the listing, such as an id or a page token."""
    timestamp: str | None = None
    """A time in the format of the source, such as the last change that was read."""
    etag: str | None = None
    """The ETag of the first page, for conditional requests."""
    credential: str | None = None
    """The credential that received the ETag. The ETag is not valid for other credentials."""


class Task(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A claimed job, as it is passed to its source.

    `Source.request` builds the request from it, and `Source.read` uses it to create documents and further jobs:

        def read(self, task: Task, answer: Answer) -> Reading:
            page = decode(answer.body)
            books = [task.document("book", book.isbn, {"title": book.title}) for book in page.books]
            if page.next:
                return Reading(documents=books, follow_ups=[task.next_page(page.next)])
            return Reading(documents=books, completed=[task.listing("book")])
    """

    spec: JobSpec
    """The description of the job."""
    run_id: int
    """The run of the job."""
    user_id: str
    """The owner of its documents and of its cursor: `spec.owner`, or the subject of the run."""
    credential: str
    """The credential that makes the call."""
    pool: str = ""
    """The pool of that credential."""
    attempt: int = 1
    """Attempt number, starting at 1."""
    cursor: Cursor | None = None
    """The cursor of the last complete run; only for first pages."""

    @property
    def etag(self) -> str | None:
        """The ETag of the last run, if this credential received it; else None."""
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
        """Create a document for an item that this job read.

        `kind` and `id` identify the document within the source, `body` is its content, and `version` orders the
        versions of an item: an older version does not replace a newer one.
        """
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
        """Return the complete list for `Reading.completed`: stored documents of `kind` that are not in it are gone."""
        return Listing(kind, self.spec.resource, self.run_id)

    def next_page(self, page: str, **params: Any) -> JobSpec:
        """Create the job for a further page of the same list. It spends the same bucket and prefers this credential."""
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
    """The meaning of an answer for its job."""

    DONE = "done"
    RETRY = "retry"  # transient fault: retried with growing pauses, a limited number of times
    LATER = "later"  # not ready, or not allowed now: requested again without counting an attempt
    GONE = "gone"  # permanent failure for this resource, recorded with the reason
    UNAVAILABLE = "unavailable"  # withheld by the upstream: recorded with the reason, not a failure
    UNAUTHORIZED = "unauthorized"  # the credential is no longer valid
    MOVED = "moved"  # redirect: requested again at the new address with a new permit, without counting an attempt


class Reading(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The result of reading an answer.

    Reading(documents=books, follow_ups=[task.next_page("2")])  # a page, and the job for the next one
    Reading(verdict=Verdict.RETRY, reason="502 Bad Gateway")  # a transient fault
    Reading(verdict=Verdict.LATER, reason="rate limited", blocked_ms=30_000)  # block the credential for 30 s
    """

    verdict: Verdict = Verdict.DONE
    """The meaning of the answer for the job. Documents and follow-up jobs are stored only with DONE."""
    reason: str = ""
    """Why the verdict is not DONE; shown with the job."""
    unchanged: bool = False
    """Whether the upstream answered "not modified" and did not count the call."""
    documents: Sequence[Document] = ()
    """Items to store; see `Task.document`."""
    effects: Sequence[Any] = ()
    """Values that the `EffectWriter` of the source writes in the transaction that ends the job, with any verdict."""
    completed: Sequence[Listing] = ()
    """Lists of which this page is the last one: stored items that are not in them are marked as gone."""
    skipped: Sequence[str] = ()
    """The reason for each item of the list that could not be read. See `read_items`."""
    follow_ups: Sequence[JobSpec] = ()
    """Jobs to add to the run."""
    cursor: Cursor | None = None
    """Where the next run continues. Given only by the last page of a listing, or with the verdict GONE."""
    allowance: Allowance | None = None
    """The remaining quota that the answer reports."""
    allowance_bucket: str | None = None
    """The bucket of `allowance`, if it differs from the bucket of the job."""
    blocked_ms: int | None = None
    """For how long the upstream blocks this credential."""
    is_guess: bool = False
    """Whether the upstream gave no duration: `blocked_ms` is then a minimum, which grows with repeated blocks."""
    rests_bucket: bool = False
    """Whether only this bucket of the credential is blocked; else all its buckets are."""
    pause_ms: int | None = None
    """For how long the upstream asks all credentials to pause this bucket."""
    delay_ms: int | None = None
    """When to request again, if the answer says so."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a run with the options of the run.

    Example:
        Subject(user_id="octocat", login="octocat", options={"since": "2026-01-01"})
    """

    user_id: str
    """Identifies the subject within its source. A subject has at most one active run."""
    login: str
    """Display name of the subject."""
    options: Mapping[str, Any] = {}
    """Options that the source understands; stored with the run as JSON."""


class Source(Protocol):
    """Defines how one upstream is collected: which requests to send, and what the answers mean.

        class BookshopSource:
            name = "bookshop"
            planning_kinds = frozenset({"shop"})

            def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
                return [JobSpec(kind="shop", resource=f"shop:{subject.user_id}")]

            def request(self, task: Task, secret: str) -> Request:
                url = f"https://books.example/{task.spec.resource}?page={task.spec.page}"
                return Request(url=url, purpose="bookshop.shop", headers={"Authorization": f"Bearer {secret}"})

            def read(self, task: Task, answer: Answer) -> Reading:
                ...

    The methods must be pure. An exception in `request` or `read` counts as a failed attempt of the job, with the
    exception as its reason.
    """

    @property
    def name(self) -> str:
        """The name of the source in runs, settings and commands."""
        ...

    @property
    def planning_kinds(self) -> frozenset[str]:
        """Kinds of jobs that find other resources. A run is PLANNING while one of them is unfinished."""
        ...

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        """Return the jobs with which a run for `subject` starts."""
        ...

    def request(self, task: Task, secret: str) -> Request:
        """Build the request of a job. `secret` is the secret of the credential that makes the call."""
        ...

    def read(self, task: Task, answer: Answer) -> Reading:
        """Read an answer. The result must depend on `task` and `answer` only, because stored answers are read again."""
        ...
