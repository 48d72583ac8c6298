"""The options of a crawl, and the jobs that follow from them."""

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Self
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from tidegate.core.arguments import require_name, require_whole
from tidegate.core.errors import InvalidArgument
from tidegate.engine.source import FIRST_PAGE, JobSpec, Subject
from tidegate.engine.upstream import Request
from tidegate.engine.upstream.messages import shown
from tidegate.systems.crawl.hosts import host_of
from tidegate.systems.crawl.site import ListedProduct, ResultPage
from tidegate.systems.crawl.stages import SEARCH, STAGES, Stage
from tidegate.systems.crawl.tables import LONGEST_HOST, LONGEST_SITE

MOST_REDIRECTS = 5
MOST_PAGES = 10_000
MOST_KEYWORDS = 1_000
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_LONGEST_KEYWORD = 200
_LONGEST_SHOWN = 80
_LONGEST_URL = 2_000
_IN_ADDRESSES = "%/:?&=+~!$,;'@()*[]"
_SEARCH_FIRST = 4
"""Priority of searches: before product pages, so that the number of products is known soon."""


class CrawlOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The options of a crawl's runs."""

    url: str
    """Scheme, host and optional port: `https://shop.example`."""
    keywords: Sequence[str]
    site: str = "marketplace"
    pages: int = 100
    """Maximum number of pages read per search."""
    ignore_robots: bool = False

    def __post_init__(self) -> None:
        require_host(self.url)
        require_name("site", self.site)
        if len(self.site) > LONGEST_SITE:
            raise InvalidArgument("site", self.site, f"must have at most {LONGEST_SITE} characters")
        require_whole("pages", self.pages, least=1, most=MOST_PAGES)
        if not 0 < len(self.keywords) <= MOST_KEYWORDS:
            raise InvalidArgument("keywords", f"{len(self.keywords)}", f"must be from 1 to {MOST_KEYWORDS}")
        for keyword in self.keywords:
            if not 0 < len(keyword) <= _LONGEST_KEYWORD or keyword != keyword.strip() or not keyword.isprintable():
                reason = f"must be printable, not padded, and have at most {_LONGEST_KEYWORD} characters"
                raise InvalidArgument("keyword", keyword[:_LONGEST_SHOWN], reason)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Parse the options of a run; raises `InvalidArgument`."""
        try:
            return msgspec.convert(dict(options), cls)
        except msgspec.ValidationError as error:
            raise InvalidArgument("options", sorted(options), str(error)) from None

    def subject(self, name: str) -> Subject:
        """The subject of the runs of a crawl with this name."""
        return Subject(user_id=require_crawl_name(name), login=host_of(self.url), options=msgspec.to_builtins(self))


def require_crawl_name(name: str) -> str:
    """Return a valid name of a crawl; raises `InvalidArgument` otherwise."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument("name", name[:_LONGEST_SHOWN], "must be 1 to 100 of A-Z a-z 0-9 _ . -")
    return name


def require_host(url: str) -> str:
    """The host of a URL without a path; raises `InvalidArgument` otherwise."""
    host, parts = host_of(url), urlsplit(url)
    Request(url=url, purpose="crawl.search")  # raises for an invalid URL or one with a password, without showing it
    if len(host) > LONGEST_HOST:
        raise InvalidArgument(
            "url", host[:_LONGEST_SHOWN] + "…", f"its host must have at most {LONGEST_HOST} characters"
        )
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidArgument("url", url[:_LONGEST_SHOWN], "must name a host, without a path")
    return host


class Target(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The subject of one job: the `params` of its `JobSpec`."""

    site: str
    url: str
    keyword: str = ""
    page: int = 0
    pages: int = 0
    """Page number, and maximum number of pages, of a search."""
    product: str = ""
    shop: str = ""
    location: str = ""
    """The target of a redirect, and the number of redirects so far."""
    hops: int = 0
    ignore_robots: bool = False

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Parse the parameters of a job."""
        return msgspec.convert(spec.params, cls)

    @property
    def host(self) -> str:
        """The host that the job calls."""
        return host_of(self.url)


def first_searches(options: CrawlOptions) -> list[JobSpec]:
    """The first page of each search, without duplicate keywords."""
    host, url = host_of(options.url), options.url.rstrip("/")
    found = Target(site=options.site, url=url, pages=options.pages, ignore_robots=options.ignore_robots)
    return [
        _search(host, msgspec.structs.replace(found, keyword=keyword, page=1))
        for keyword in dict.fromkeys(options.keywords)
    ]


def jobs_of_search_page(target: Target, host: str, listing: ResultPage) -> list[JobSpec]:
    """The jobs that a search page leads to: one per product and stage, then one for the next search page, if any."""
    jobs = [spec for found in listing.products for spec in _stages(target, host, found)]
    following = listing.next_page
    # Only forward: a site that links to the same or an earlier page must not cause an endless search.
    if following is not None and target.page < following <= target.pages:
        jobs.append(_search(host, msgspec.structs.replace(target, page=following, location="", hops=0)))
    return jobs


def redirected(spec: JobSpec, target: Target, location: str, answered: str) -> JobSpec | str:
    """The job that follows a redirect; or the reason why there is none.

    A host may redirect from http to https, and its further pages are requested by https then. A redirect from https to
    http is refused, because the headers of an identity would be sent unencrypted.
    """
    hops = target.hops + 1
    if hops > MOST_REDIRECTS:
        return f"redirected more than {MOST_REDIRECTS} times"
    try:
        # Relative to the page that answered, without the fragment, which is never sent.
        goal = quote(urljoin(answered, location).partition("#")[0], safe=_IN_ADDRESSES)
        is_ours, scheme = host_of(goal) == target.host, urlsplit(goal).scheme
    except (InvalidArgument, ValueError):
        return f"redirected to an invalid URL: {shown(location)[:_LONGEST_SHOWN]}"
    if not is_ours or len(goal) > _LONGEST_URL:
        return f"redirected to another host: {shown(goal)[:_LONGEST_SHOWN]}"
    if scheme != "https" and target.url.startswith("https:"):
        return f"redirected from https to http: {shown(goal)[:_LONGEST_SHOWN]}"
    moved = msgspec.structs.replace(target, location=goal, hops=hops)
    if not target.url.startswith(f"{scheme}:"):
        # Follow-up jobs of this page use https from now on.
        moved = msgspec.structs.replace(moved, url=f"{scheme}://{target.host}")
    return msgspec.structs.replace(spec, page=f"redirect:{hops}", params=msgspec.to_builtins(moved))


def product_resource(host: str, product_id: str) -> str:
    """The resource of a product's jobs, the same for all stages."""
    return f"{host}/{product_id}"


def name_in(spec: JobSpec) -> str:
    """The product of a job, or the keyword and page of a search."""
    return spec.resource[len(spec.bucket) + 1 :]


def _search(host: str, target: Target) -> JobSpec:
    # Each page is a resource of its own, so that each has its own ETag.
    resource = f"{host}?{_named(target.keyword)}&{target.page}"
    return JobSpec(
        kind=SEARCH,
        resource=resource,
        page=FIRST_PAGE,
        params=msgspec.to_builtins(target),
        bucket=host,
        priority=_SEARCH_FIRST,
    )


def _stages(target: Target, host: str, found: ListedProduct) -> list[JobSpec]:
    params: dict[str, Any] = {
        "site": target.site,
        "url": target.url,
        "product": found.product_id,
        "shop": found.shop_id,
    }
    if target.ignore_robots:
        params["ignore_robots"] = True
    resource = product_resource(host, found.product_id)
    return [_stage(stage, resource, host, params) for stage in STAGES]


def _stage(stage: Stage, resource: str, host: str, params: dict[str, Any]) -> JobSpec:
    return JobSpec(kind=stage.value, resource=resource, params=params, bucket=host)


def _named(keyword: str) -> str:
    """A keyword in a resource: unchanged if possible, otherwise its hash."""
    if len(keyword) <= _LONGEST_SHOWN and not set("|{}") & set(keyword):
        return keyword
    return blake2b(keyword.encode(), digest_size=12).hexdigest()
