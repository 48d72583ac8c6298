"""Crawled sites as a source: the jobs that start a run, the request of each job, and the meaning of answers.

    200    the page, which is stored. One that is not the requested page (`Unreadable`) is requested again, and stored
           after the last attempt. If the site's code fails in any other way, a retry would not help: the page is
           stored as a dead letter until the code is corrected
    304    unchanged: a search has the same results, a part of a product stays as it is
    3xx    a job of its own, since every call needs a permit; at most five, and to the same host
    404    withheld
    5xx    retried
    401, 403, 429, 503: see `health_records.py`

An ETag is valid for all identities. It is stored with what it stands for: the products of a listing, the hash of a
part.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from tidegate.core.errors import ContractBroken, InvalidArgument
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import Cursor, JobSpec, Reading, Subject, Task, Verdict
from tidegate.engine.upstream import Answer, Request
from tidegate.systems.crawl import SOURCE, health_records, raws
from tidegate.systems.crawl.politeness import PoliteRequest
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate.systems.crawl.site import Challenged, ListedProduct, ResultPage, Sites, Unreadable, explain
from tidegate.systems.crawl.stages import SEARCH, PageKind, Stage, stage_of
from tidegate.systems.crawl.targets import (
    CrawlOptions,
    Target,
    first_searches,
    jobs_of_search_page,
    name_in,
    redirected,
)


class NewRaw(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An answer to store: a part of a product, a search page, or a dead letter.

    A part of a product with known content is not stored.
    """

    site: str
    host: str
    product_id: str
    """The id of the product; for a search page, its keyword and page."""
    shop_id: str = ""
    stage: PageKind
    hash: str
    body: bytes
    """The body, encoded by `raws.pack`."""
    error: str | None = None
    """Why it could not be read, which makes it a dead letter at once."""


class UnchangedContent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The upstream confirmed that the content with this hash is unchanged."""

    host: str
    product_id: str
    stage: Stage
    hash: str


class ListedProducts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Products that a search page lists."""

    host: str
    products: Sequence[ListedProduct]


_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_WITHHELD_STATUSES = frozenset({404, 410, 451})
_TRANSIENT_STATUSES = frozenset({408, 425})
_LONGEST_KEPT = 15_000
"""Maximum length in characters, each of up to four bytes."""
_LONGEST_ETAG = 200
_LONGEST_DATE = 40
_headers = lru_cache(maxsize=4096)(msgspec.json.Decoder(dict[str, str]).decode)
_listing = msgspec.json.Decoder(ResultPage).decode


class CrawlSource:
    """Searches, and the pages of the products that they find. `CrawlOptions` documents the options of a run.

    `tries` is the number of attempts of a job (`settings.collect.max_attempts`).
    """

    name = SOURCE
    planning_kinds = frozenset({SEARCH})

    def __init__(self, sites: Sites, settings: CrawlSettings, *, tries: int = CollectSettings().max_attempts) -> None:
        self._sites, self._settings, self._tries = sites, settings, tries

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        """The first page of each search."""
        options = CrawlOptions.of(subject.options)
        self._sites.get(options.site)
        searches = first_searches(options)
        if subject.login != searches[0].bucket:
            raise InvalidArgument("login", subject.login, f"must be the host of the url, {searches[0].bucket}")
        return searches

    def request(self, task: Task, secret: str) -> Request:
        """The request of a job, with the headers of an identity, which are the secret."""
        target = Target.of(task.spec)
        known = _validators(task)
        return PoliteRequest(
            url=self._url(task.spec, target),
            purpose=f"crawl.{task.spec.kind}",
            headers={**_headers(secret), **known} if known else _headers(secret),
            ignores_robots=target.ignore_robots,
        )

    def read(self, task: Task, answer: Answer) -> Reading:
        """Interpret the answer to a job."""
        if (refused := health_records.refusal(answer, self._settings)) is not None:
            return refused
        status, target = answer.status, Target.of(task.spec)
        if status == 200:
            return self._content(task, target, answer)
        # A 304 to an unconditional request is an error of the host, and is retried below.
        if status == 304 and task.cursor is not None:
            return _unchanged(task, target, task.cursor)
        if status in _REDIRECT_STATUSES:
            return _moved(task, target, answer)
        if status in _WITHHELD_STATUSES:
            return Reading(verdict=Verdict.UNAVAILABLE, reason=f"status {status}")
        # An unexpected status below 400 is retried too; other client errors would be repeated.
        passes = status >= 500 or status < 400 or status in _TRANSIENT_STATUSES
        return Reading(verdict=Verdict.RETRY if passes else Verdict.GONE, reason=f"status {status}")

    def robots_url(self, spec: JobSpec) -> str | None:
        """The URL that a job calls; None if robots.txt is ignored, or the site's code fails."""
        target = Target.of(spec)
        if target.ignore_robots:
            return None
        try:
            return self._url(spec, target)
        except Exception:  # the request of the job fails with the same error, which is reported there
            return None

    def _url(self, spec: JobSpec, target: Target) -> str:
        return target.location or target.url + self._path(spec, target)

    def _path(self, spec: JobSpec, target: Target) -> str:
        site, stage = self._sites.get(target.site), stage_of(spec.kind)
        if stage is not None:
            return site.path(stage, target.product, target.shop)
        return site.search_path(target.keyword, target.page)

    def _content(self, task: Task, target: Target, answer: Answer) -> Reading:
        stage = stage_of(task.spec.kind)
        try:
            return self._search(task, target, answer) if stage is None else self._part(task, target, answer, stage)
        except Challenged as error:
            return health_records.challenged(self._settings, str(error))
        except Unreadable as error:
            # A page that was cut off or replaced by a notice is often complete at the next attempt.
            if task.attempt < self._tries:
                return Reading(verdict=Verdict.RETRY, reason=f"200 with a page that cannot be read: {error}")
            return _unread(task, target, answer, stage, explain(error))
        except Exception as error:  # the site's code is a plug-in
            return _unread(task, target, answer, stage, explain(error))

    def _search(self, task: Task, target: Target, answer: Answer) -> Reading:
        listing = self._sites.get(target.site).read_listing(answer.body)
        reading = _found(task, target, listing, _cursor_of(answer, msgspec.json.encode(listing).decode()))
        return msgspec.structs.replace(reading, effects=[_page_of_search(task, target, answer), *reading.effects])

    def _part(self, task: Task, target: Target, answer: Answer, stage: Stage) -> Reading:
        content = self._sites.get(target.site).extract(stage, target.product, answer.body)
        # A hash of the extracted content, not of the page: dates and tokens in a page do not count as changes.
        content_hash = raws.digest(raws.as_text(content).encode())
        raw = _raw(target, task.spec.bucket, stage, content_hash, answer.body)
        return Reading(effects=[raw], cursor=_cursor_of(answer, content_hash))


def _unread(task: Task, target: Target, answer: Answer, stage: Stage | None, error: str) -> Reading:
    """The meaning of a page that the site's code cannot read: it is stored unchanged.

    A part of a product is retried by the processor before it becomes a dead letter. A search page becomes one at once,
    and its job fails: a replay has the job read it again.
    """
    if stage is not None:
        return Reading(effects=[_raw(target, task.spec.bucket, stage, raws.digest(answer.body), answer.body)])
    reason = f"200 with a page that cannot be read: {error}"
    return Reading(verdict=Verdict.GONE, reason=reason, effects=[_page_of_search(task, target, answer, error)])


def _page_of_search(task: Task, target: Target, answer: Answer, error: str | None = None) -> NewRaw:
    return NewRaw(
        site=target.site,
        host=task.spec.bucket,
        product_id=name_in(task.spec),
        stage=PageKind.SEARCH,
        hash=raws.digest(answer.body),
        body=raws.pack(answer.body),
        error=error,
    )


def _found(
    task: Task, target: Target, listing: ResultPage, cursor: Cursor | None, *, unchanged: bool = False
) -> Reading:
    host = task.spec.bucket
    effects = [ListedProducts(host=host, products=listing.products)] if listing.products else []
    return Reading(
        effects=effects,
        follow_ups=jobs_of_search_page(target, host, listing),
        skipped=listing.skipped,
        cursor=cursor,
        unchanged=unchanged,
    )


def _unchanged(task: Task, target: Target, known: Cursor) -> Reading:
    """The meaning of a 304: the previous content is still valid; it was stored with the validator."""
    if known.cursor is None:
        raise ContractBroken("received a 304 for a request without a condition")
    stage = stage_of(task.spec.kind)
    if stage is None:
        return _found(task, target, _listing(known.cursor), None, unchanged=True)
    confirmed = UnchangedContent(host=task.spec.bucket, product_id=target.product, stage=stage, hash=known.cursor)
    return Reading(effects=[confirmed], unchanged=True)


def _moved(task: Task, target: Target, answer: Answer) -> Reading:
    following = redirected(task.spec, target, answer.headers.get("Location", ""), answer.url)
    if isinstance(following, str):
        return Reading(verdict=Verdict.GONE, reason=f"status {answer.status}: {following}")
    return Reading(follow_ups=[following])


def _raw(target: Target, host: str, stage: Stage, content_hash: str, body: bytes) -> NewRaw:
    return NewRaw(
        site=target.site,
        host=host,
        product_id=target.product,
        shop_id=target.shop,
        stage=PageKind(stage),
        hash=content_hash,
        body=raws.pack(body),
    )


def _cursor_of(answer: Answer, content: str) -> Cursor | None:
    """Build the cursor that makes the next request conditional, with any identity.

    It has the ETag or the date of the answer, and the `content` that these validate. None if the answer has neither,
    or if they are too long to be stored.
    """
    etag, changed = answer.headers.get("ETag"), answer.headers.get("Last-Modified")
    if len(content) > _LONGEST_KEPT:  # too long for some databases: the next request is unconditional
        return None
    # An ETag is exact; a date has a resolution of a second and is used only without it.
    if etag is not None and len(etag) <= _LONGEST_ETAG:
        return Cursor(cursor=content, etag=etag)
    if changed is not None and len(changed) <= _LONGEST_DATE:
        return Cursor(cursor=content, timestamp=changed)
    return None


def _validators(task: Task) -> Mapping[str, str]:
    known = task.cursor
    if known is None or known.cursor is None:
        return {}
    if known.etag is not None:
        return {"If-None-Match": known.etag}
    return {} if known.timestamp is None else {"If-Modified-Since": known.timestamp}
