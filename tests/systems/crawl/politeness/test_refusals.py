"""What hosts say that do not want to be called now."""

from datetime import UTC, datetime, timedelta

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from tidegate.engine.source import Verdict
from tidegate.engine.upstream import Head
from tidegate.systems.crawl.health_records import RefusalRecorded, challenged, refusal
from tidegate.systems.crawl.settings import CrawlSettings

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
HOST, IDENTITY = CrawlSettings(), CrawlSettings(retry_after_binds="identity")
REST_MS = 30_000


def head(status: int, **headers: str) -> Head:
    named = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    return Head(status=status, headers=CIMultiDictProxy(named), url="http://shop.test/", received_at=NOW)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    "told",
    [
        {"Retry_After": "90"},
        {"Retry_After": "Thu, 01 Jan 2026 12:01:30 GMT"},
        {"Retry_After": "Thu, 01 Jan 2026 03:01:30 GMT", "Date": "Thu, 01 Jan 2026 03:00:00 GMT"},  # a wrong clock
    ],
    ids=["seconds", "date", "date by another clock"],
)
def test_a_retry_after_applies_to_the_host_or_the_identity(status: int, told: dict[str, str]):
    said = refusal(head(status, **told), HOST)
    assert said is not None
    assert (said.verdict, said.pause_ms, said.delay_ms) == (Verdict.LATER, 90_000, 0)

    said = refusal(head(status, **told), IDENTITY)
    assert said is not None
    assert (said.verdict, said.pause_ms, said.blocked_ms) == (Verdict.LATER, None, 90_000)
    assert said.rests_bucket
    assert not said.is_guess
    assert said.effects == (RefusalRecorded(reason=said.reason, blocked_ms=90_000),)


def test_a_429_blocks_the_identity_too_and_a_503_does_not():
    too_often, busy = refusal(head(429, Retry_After="5"), HOST), refusal(head(503, Retry_After="5"), HOST)
    assert too_often is not None
    assert busy is not None
    assert (too_often.blocked_ms, too_often.rests_bucket) == (5_000, True)
    assert (busy.blocked_ms, busy.rests_bucket) == (None, False)
    assert busy.effects == (RefusalRecorded(reason=busy.reason, pause_ms=5_000),)


@pytest.mark.parametrize(("status", "verdict"), [(401, Verdict.RETRY), (403, Verdict.RETRY), (429, Verdict.LATER)])
def test_without_a_duration_the_identity_is_blocked_for_a_guess_and_the_host_is_not(status: int, verdict: Verdict):
    """A page that is forbidden to everybody must not be asked for without end, so a 403 is counted."""
    said = refusal(head(status), HOST)
    assert said is not None
    assert (said.verdict, said.blocked_ms, said.is_guess, said.rests_bucket) == (verdict, REST_MS, True, True)
    assert said.pause_ms is None
    assert said.effects == (RefusalRecorded(reason=said.reason, blocked_ms=REST_MS, is_guess=True),)


def test_a_ban_with_an_end_counts_no_attempt():
    said = refusal(head(403, Retry_After="600"), IDENTITY)
    assert said is not None
    assert (said.verdict, said.blocked_ms, said.is_guess) == (Verdict.LATER, 600_000, False)


@pytest.mark.parametrize("status", [401, 403])
def test_a_ban_applies_to_the_identity_and_not_to_the_host(status: int):
    said = refusal(head(status, Retry_After="600"), HOST)
    assert said is not None
    assert (said.blocked_ms, said.rests_bucket, said.pause_ms) == (600_000, True, None)


def test_a_captcha_blocks_the_identity():
    said = challenged(HOST)
    assert (said.verdict, said.blocked_ms, said.is_guess, said.rests_bucket) == (Verdict.RETRY, REST_MS, True, True)
    assert said.effects == (RefusalRecorded(reason=said.reason, blocked_ms=REST_MS, is_guess=True),)


@pytest.mark.parametrize("status", [200, 304, 404, 500, 502, 503])
def test_other_answers_are_not_refusals(status: int):
    assert refusal(head(status), HOST) is None


@pytest.mark.parametrize("text", ["", "0", "-5", "soon", "Thu, 01 Jan 2026 12:00:00 GMT", "1.5", "Mon, 99 Foo 2026"])
def test_a_retry_after_of_zero_has_no_effect(text: str):
    assert not head(429, Retry_After=text).retry_after(longest=HOST.longest_retry_after)


@pytest.mark.parametrize("text", ["999999999999", "9" * 5_000, "Fri, 01 Jan 2100 00:00:00 GMT"])
def test_a_too_long_retry_after_is_limited_to_the_maximum(text: str):
    assert head(429, Retry_After=text).retry_after(longest=HOST.longest_retry_after) == timedelta(days=1)
