"""What a crawl asks for, and what each answer means to it."""

from typing import Any

import msgspec
import pytest

from tests.systems.crawl.core.harness import HOST, SETTINGS, PlainSite, answered
from tidegate.core.errors import InvalidArgument, InvalidSettings, NotFound
from tidegate.engine.source import Cursor, JobSpec, Task, Verdict
from tidegate.systems.crawl.politeness import PoliteRequest
from tidegate.systems.crawl.site import Challenged, ListedProduct, ResultPage, Sites, load_site
from tidegate.systems.crawl.source import CrawlSource, ListedProducts, NewRaw, UnchangedContent
from tidegate.systems.crawl.stages import SEARCH, STAGES, Stage
from tidegate.systems.crawl.targets import CrawlOptions

URL = f"https://{HOST}"
SECRET = '{"User-Agent":"Mozilla/5.0","Cookie":"sid=1"}'
SOURCE = CrawlSource(Sites([PlainSite()]), SETTINGS)


def options(**changes: Any) -> CrawlOptions:
    return CrawlOptions.of({"url": URL, "keywords": ["rope"], "site": "plain", **changes})


def searching(**changes: Any) -> JobSpec:
    (spec,) = SOURCE.first_jobs(options(**changes).subject("daily"))
    return spec


def stages_of(spec: JobSpec, body: Any = (["p1"], None)) -> dict[Stage, JobSpec]:
    reading = SOURCE.read(task(spec), answered(body))
    return {Stage(job.kind): job for job in reading.follow_ups if job.kind != SEARCH}


def task(spec: JobSpec, **changes: Any) -> Task:
    return Task(spec=spec, run_id=1, user_id="daily", credential="crawl:ada", **changes)


def test_a_run_starts_with_the_first_page_of_each_search():
    specs = SOURCE.first_jobs(options(keywords=["rope", "größe 42", "rope", "a|{b}"]).subject("daily"))
    assert [(spec.kind, spec.bucket) for spec in specs] == [(SEARCH, HOST)] * 3
    assert SOURCE.request(task(specs[0]), SECRET).url == f"{URL}/search/rope/1"
    assert len({spec.resource for spec in specs}) == 3


@pytest.mark.parametrize("url", ["http://ada:secret@shop.example", "https://bücher.example", "http://a b.example"])
def test_an_invalid_url_is_refused_before_anything_is_stored(url: str):
    with pytest.raises(InvalidArgument, match="url") as raised:
        options(url=url)
    assert "secret" not in str(raised.value)


def test_a_listing_creates_jobs_for_every_stage_of_its_products_and_the_next_page():
    reading = SOURCE.read(task(searching(pages=2)), answered((["p1", "p2"], 2)))
    assert [(job.kind, job.resource) for job in reading.follow_ups] == [
        *((stage, f"{HOST}/{product}") for product in ("p1", "p2") for stage in STAGES),
        (SEARCH, f"{HOST}?rope&2"),
    ]
    page, sighted = reading.effects
    assert sighted == ListedProducts(host=HOST, products=[ListedProduct("p1", "s1"), ListedProduct("p2", "s1")])
    assert isinstance(page, NewRaw)
    assert (page.stage, page.product_id, page.body, page.error) == (SEARCH, "rope&1", b'[["p1","p2"],2]', None)
    assert {job.bucket for job in reading.follow_ups} == {HOST}


class BrokenSite(PlainSite):
    """Its code has a defect."""

    def read_listing(self, body: bytes) -> ResultPage:
        raise KeyError("price")

    def extract(self, stage: Stage, product_id: str, body: bytes) -> Any:
        raise KeyError("price")


def test_a_page_whose_parser_fails_is_stored_immediately_and_not_requested_again():
    broken, search = CrawlSource(Sites([BrokenSite()]), SETTINGS), searching()
    listing = broken.read(task(search), answered((["p1"], None)))
    (page,) = listing.effects
    assert isinstance(page, NewRaw)
    assert (listing.verdict, list(listing.follow_ups)) == (Verdict.GONE, [])
    assert (page.stage, page.body) == (SEARCH, b'[["p1"],null]')
    assert (page.error or "").startswith("KeyError: 'price' (test_source.py, line ")

    part = broken.read(task(stages_of(search)[Stage.DETAIL]), answered({"said": "A"}))
    (raw,) = part.effects
    assert isinstance(raw, NewRaw)
    assert (part.verdict, raw.stage, raw.error, raw.body) == (Verdict.DONE, "detail", None, b'{"said":"A"}')


@pytest.mark.parametrize("following", [1, 0, 3])
def test_no_page_is_read_beyond_the_limit_or_twice(following: int):
    second = SOURCE.read(task(searching(pages=2)), answered(([], 2))).follow_ups[0]
    assert SOURCE.read(task(second), answered(([], following))).follow_ups == []


def test_a_call_uses_the_identity_and_follows_no_redirect_automatically():
    spec = stages_of(searching())[Stage.DETAIL]
    request = SOURCE.request(task(spec), SECRET)
    assert isinstance(request, PoliteRequest)
    assert (request.url, request.ignores_robots) == (f"{URL}/detail/s1/p1", False)
    assert request.headers == {"User-Agent": "Mozilla/5.0", "Cookie": "sid=1"}


def test_robots_txt_is_ignored_only_when_the_crawl_says_so_and_then_for_all_requests():
    spec = searching(ignore_robots=True)
    assert SOURCE.request(task(spec), SECRET).ignores_robots  # pyright: ignore[reportAttributeAccessIssue]
    for job in SOURCE.read(task(spec), answered((["p1"], 2))).follow_ups:
        assert SOURCE.request(task(job), SECRET).ignores_robots  # pyright: ignore[reportAttributeAccessIssue]


def test_the_validator_of_the_last_answer_is_sent_with_every_identity():
    spec = stages_of(searching())[Stage.DETAIL]
    by_etag = SOURCE.read(task(spec), answered({"said": "A"}, ETag='"a"', Last_Modified="Thu, 01 Jan 2026")).cursor
    assert by_etag is not None
    assert by_etag.credential is None
    assert SOURCE.request(task(spec, cursor=by_etag), SECRET).headers["If-None-Match"] == '"a"'
    by_date = SOURCE.read(task(spec), answered({"said": "A"}, Last_Modified="Thu, 01 Jan 2026 00:00:00 GMT")).cursor
    headers = SOURCE.request(task(spec, cursor=by_date), SECRET).headers
    assert headers["If-Modified-Since"] == "Thu, 01 Jan 2026 00:00:00 GMT"
    assert "If-None-Match" not in headers
    assert SOURCE.read(task(spec), answered({"said": "A"})).cursor is None
    for useless in (None, Cursor(etag='"a"'), Cursor(cursor="hash")):
        assert (
            not {"If-None-Match", "If-Modified-Since"}
            & SOURCE.request(task(spec, cursor=useless), SECRET).headers.keys()
        )


def test_an_unchanged_listing_creates_jobs_for_the_same_products():
    spec = searching(pages=9)
    first = SOURCE.read(task(spec), answered((["p1", "p2"], 2), ETag='"a"'))
    again = SOURCE.read(task(spec, cursor=first.cursor), answered(b"", 304))
    assert again.follow_ups == first.follow_ups
    assert again.effects == first.effects[1:], "and there is no page to be kept"
    assert (again.verdict, again.unchanged, again.cursor) == (Verdict.DONE, True, None)


def test_an_unchanged_part_is_confirmed_by_its_hash():
    spec = stages_of(searching())[Stage.DETAIL]
    first = SOURCE.read(task(spec), answered({"said": "A"}, ETag='"a"'))
    (raw,) = first.effects
    assert isinstance(raw, NewRaw)
    again = SOURCE.read(task(spec, cursor=first.cursor), answered(b"", 304))
    assert again.effects == [UnchangedContent(host=HOST, product_id="p1", stage=Stage.DETAIL, hash=raw.hash)]
    assert again.unchanged


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        *((status, Verdict.UNAVAILABLE) for status in (404, 410, 451)),
        *((status, Verdict.RETRY) for status in (500, 502, 503, 504, 408, 425, 202, 304, 403)),
        *((status, Verdict.GONE) for status in (400, 405, 418)),
        (429, Verdict.LATER),
    ],
)
def test_each_status_has_one_meaning(status: int, verdict: Verdict):
    for spec in (searching(), *stages_of(searching()).values()):
        reading = SOURCE.read(task(spec), answered(b"", status))
        assert (reading.verdict, bool(reading.reason)) == (verdict, True)


def test_a_requested_pause_applies_to_all_identities():
    reading = SOURCE.read(task(searching()), answered(b"", 503, Retry_After="7"))
    assert (reading.verdict, reading.pause_ms) == (Verdict.LATER, 7_000)


SIGNED = "file?X-Amz-Signature=f00dcafe&part=1"


def test_a_captcha_blocks_the_identity_at_this_host():
    class Suspicious(PlainSite):
        def read_listing(self, body: bytes) -> ResultPage:
            raise Challenged("are you human?")

    reading = CrawlSource(Sites([Suspicious()]), SETTINGS).read(task(searching()), answered(([], None)))
    assert (reading.verdict, reading.rests_bucket, reading.is_guess) == (Verdict.RETRY, True, True)
    assert reading.blocked_ms


@pytest.mark.parametrize(
    "location", ["/new?x=1#part", "new?x=1", f"{URL}/new?x=1", f"https://{HOST.upper()}:443/new?x=1"]
)
def test_a_redirect_is_a_separate_call(location: str):
    for spec in (searching(), stages_of(searching())[Stage.OPTION]):
        reading = SOURCE.read(task(spec), answered(b"", 302, Location=location))
        (moved,) = reading.follow_ups
        assert (reading.verdict, moved.page, moved.resource) == (Verdict.DONE, "redirect:1", spec.resource)
        assert SOURCE.request(task(moved), SECRET).url.endswith("/new?x=1")
        again = SOURCE.read(task(moved), answered({"said": "A"} if spec.kind != SEARCH else (["p1"], None)))
        assert again.effects


@pytest.mark.parametrize(
    "location", ["https://elsewhere.example/", f"http://{HOST}/", "//[", "https://shop.example:x/"]
)
def test_a_redirect_to_another_host_is_not_followed(location: str):
    reading = SOURCE.read(task(searching()), answered(b"", 301, Location=location))
    assert (reading.verdict, reading.follow_ups) == (Verdict.GONE, ())


@pytest.mark.parametrize(
    "location", [f"https://elsewhere.example/{SIGNED}", f"http://{HOST}/{SIGNED}", f"https://{HOST}:x/{SIGNED}"]
)
def test_the_signature_of_a_refused_redirect_is_not_shown(location: str):
    reading = SOURCE.read(task(searching()), answered(b"", 302, Location=location))
    assert "redirected" in reading.reason
    assert "f00dcafe" not in reading.reason


@pytest.mark.parametrize("port", ["", ":8080"])
def test_a_redirect_from_http_to_https_is_followed_and_later_requests_use_https(port: str):
    plain = f"http://{HOST}{port}"
    sent = msgspec.structs.replace(answered(b"", 301, Location=f"https://{HOST}{port}/search/rope/1"), url=f"{plain}/x")
    (moved,) = SOURCE.read(task(searching(url=plain)), sent).follow_ups
    assert SOURCE.request(task(moved), SECRET).url == f"https://{HOST}{port}/search/rope/1"

    found = SOURCE.read(task(moved), answered((["p1"], 2))).follow_ups
    urls = [SOURCE.request(task(job), SECRET).url for job in found]
    assert [url.partition("://")[0] for url in urls] == ["https"] * 4, "no second redirect for each of them"
    assert {job.bucket for job in found} == {f"{HOST}{port}"}, "it is the same host, with the same pace"


def test_redirects_end_after_five():
    spec = searching()
    for hop in range(5):
        (spec,) = SOURCE.read(task(spec), answered(b"", 302, Location="/page")).follow_ups
        assert spec.page == f"redirect:{hop + 1}"
    assert SOURCE.read(task(spec), answered(b"", 302, Location="/page")).verdict is Verdict.GONE


def test_equal_content_has_an_equal_hash_in_any_surrounding():
    spec = stages_of(searching())[Stage.DETAIL]
    raws = [SOURCE.read(task(spec), answered({"said": "A", "trace": n})).effects[0] for n in range(2)]
    assert raws[0].hash == raws[1].hash
    assert raws[0].body != raws[1].body


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "shop.example"},
        {"url": "ftp://shop.example"},
        {"url": "https://shop.example/page"},
        {"url": "https://shop.example?q=1"},
        {"url": "https://" + "x" * 101},
        {"keywords": []},
        {"keywords": [""]},
        {"keywords": [" padded"]},
        {"keywords": ["x" * 201]},
        {"keywords": ["two\nlines"]},
        {"keywords": "rope"},
        {"pages": 0},
        {"pages": 10_001},
        {"pages": "all"},
        {"site": ""},
        {"unknown": 1},
    ],
    ids=str,
)
def test_invalid_options_are_refused(wrong: dict[str, Any]):
    with pytest.raises(InvalidArgument):
        options(**wrong)


def test_a_run_for_an_unknown_site_or_another_host_is_refused():
    with pytest.raises(NotFound, match="plain"):
        SOURCE.first_jobs(options(site="bazaar").subject("daily"))
    subject = options().subject("daily")
    with pytest.raises(InvalidArgument, match="login"):
        SOURCE.first_jobs(msgspec.structs.replace(subject, login="elsewhere.example"))


def test_own_site_classes_are_loaded_by_name():
    site = load_site("tests.systems.crawl.core.harness:PlainSite")
    assert Sites([site]).names == ["plain"]
    with pytest.raises(InvalidSettings, match="no site"):
        load_site("tests.systems.crawl.core.harness:SETTINGS")
    with pytest.raises(InvalidArgument, match="twice"):
        Sites([site, site])
