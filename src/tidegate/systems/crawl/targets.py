"""What a crawl asks for: its options, and the jobs that follow from them."""

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
from tidegate.systems.crawl.hosts import host_of
from tidegate.systems.crawl.site import Found, Listing
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
"""What finds jobs goes before what is found, so that it is soon known how much there is to do."""


class CrawlOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a crawl is about: the options of its runs."""

    url: str
    """Scheme, host and perhaps a port: `https://shop.example`."""
    keywords: Sequence[str]
    site: str = "marketplace"
    pages: int = 100
    """How many pages of each search are read at most."""
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
        """From the options of a run; raises `InvalidArgument`."""
        try:
            return msgspec.convert(dict(options), cls)
        except msgspec.ValidationError as error:
            raise InvalidArgument("options", sorted(options), str(error)) from None

    def subject(self, name: str) -> Subject:
        """Whom the runs of a crawl of this name are about."""
        return Subject(user_id=require_crawl_name(name), login=host_of(self.url), options=msgspec.to_builtins(self))


def require_crawl_name(name: str) -> str:
    """A name that a crawl can have; raises `InvalidArgument`."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument("name", name[:_LONGEST_SHOWN], "must be 1 to 100 of A-Z a-z 0-9 _ . -")
    return name


def require_host(url: str) -> str:
    """The host of an address that names nothing else; raises `InvalidArgument`."""
    host, parts = host_of(url), urlsplit(url)
    Request(url=url, purpose="crawl.search")  # refuses what could not be called, a password among it, and shows nothing
    if len(host) > LONGEST_HOST:
        raise InvalidArgument(
            "url", host[:_LONGEST_SHOWN] + "…", f"its host must have at most {LONGEST_HOST} characters"
        )
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidArgument("url", url[:_LONGEST_SHOWN], "must name a host, and no page of it")
    return host


class Target(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What one job is about: the `params` of its `JobSpec`."""

    site: str
    url: str
    keyword: str = ""
    page: int = 0
    pages: int = 0
    """Of a search."""
    product: str = ""
    shop: str = ""
    location: str = ""
    """Where we were sent, and after how many times."""
    hops: int = 0
    ignore_robots: bool = False

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Of a job."""
        return msgspec.convert(spec.params, cls)

    @property
    def host(self) -> str:
        """Whom the job calls."""
        return host_of(self.url)


def first_searches(options: CrawlOptions) -> list[JobSpec]:
    """The first page of each search, each keyword once."""
    host, url = host_of(options.url), options.url.rstrip("/")
    found = Target(site=options.site, url=url, pages=options.pages, ignore_robots=options.ignore_robots)
    return [
        _search(host, msgspec.structs.replace(found, keyword=keyword, page=1))
        for keyword in dict.fromkeys(options.keywords)
    ]


def found_on(target: Target, host: str, listing: Listing) -> list[JobSpec]:
    """What a page of a search leads to: every stage of each product, one product after the other, and the next page."""
    jobs = [spec for found in listing.products for spec in _stages(target, host, found)]
    following = listing.next_page
    if following is not None and target.page < following <= target.pages:
        jobs.append(_search(host, msgspec.structs.replace(target, page=following, location="", hops=0)))
    return jobs


def redirected(spec: JobSpec, target: Target, location: str, answered: str) -> JobSpec | str:
    """The call to make instead of one that was sent elsewhere; or why there is none.

    A host may send from http to https, and what is found there is asked for by https from then on. The other way the
    headers of an identity would go out in plain text.
    """
    hops = target.hops + 1
    if hops > MOST_REDIRECTS:
        return f"sent elsewhere more than {MOST_REDIRECTS} times"
    try:
        goal = quote(urljoin(answered, location).partition("#")[0], safe=_IN_ADDRESSES)
        is_ours, scheme = host_of(goal) == target.host, urlsplit(goal).scheme
    except (InvalidArgument, ValueError):
        return f"sent to what is no address: {location[:_LONGEST_SHOWN]}"
    if not is_ours or len(goal) > _LONGEST_URL:
        return f"sent to another host: {goal[:_LONGEST_SHOWN]}"
    if scheme != "https" and target.url.startswith("https:"):
        return f"sent from https to http: {goal[:_LONGEST_SHOWN]}"
    moved = msgspec.structs.replace(target, location=goal, hops=hops)
    if not target.url.startswith(f"{scheme}:"):
        moved = msgspec.structs.replace(moved, url=f"{scheme}://{target.host}")
    return msgspec.structs.replace(spec, page=f"redirect:{hops}", params=msgspec.to_builtins(moved))


def product_resource(host: str, product_id: str) -> str:
    """By which the jobs of a product are known, whatever their stage."""
    return f"{host}/{product_id}"


def name_in(spec: JobSpec) -> str:
    """What a job is about within its host: the product, or keyword and page of a search."""
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


def _stages(target: Target, host: str, found: Found) -> list[JobSpec]:
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
    """A keyword as it may stand in a resource: as it is, or by a hash."""
    if len(keyword) <= _LONGEST_SHOWN and not set("|{}") & set(keyword):
        return keyword
    return blake2b(keyword.encode(), digest_size=12).hexdigest()
