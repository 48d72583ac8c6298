"""Reads allowances from answers, recognizes refusals because of a limit, and explains refusals.

An explanation has GitHub's message, missing scopes of the token, or a missing single sign-on.
"""

import re
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec

from tidegate.core.clock import milliseconds
from tidegate.core.errors import UNDECODABLE
from tidegate.engine.source import Reading, Verdict
from tidegate.engine.upstream import Answer
from tidegate.primitives.gate import Allowance

LEAST_PAUSE_MS = 60_000
"""Minimum pause after a secondary limit without a duration."""
_LONGEST_PAUSE = timedelta(hours=24)
LONGEST_PAUSE_MS = milliseconds(_LONGEST_PAUSE)
_BUCKET = re.compile(r"[A-Za-z0-9_]{1,40}")
_WORDS = ("rate limit", "abuse detection", "login attempts", "try again later")
"""Words in temporary refusals: because of a limit, or after too many failed logins with the credential."""


class LimitKind(StrEnum):
    """The kind of limit that refused a call."""

    PRIMARY = "primary"  # the window is empty; its allowance says until when
    SECONDARY = "secondary"  # too fast, too many concurrent calls, or without a reason


class _Remaining(msgspec.Struct):
    limit: int
    remaining: int
    reset: int


class _RateLimit(msgspec.Struct):
    resources: dict[str, _Remaining]


def allowance(answer: Answer) -> Allowance | None:
    """The allowance in the headers; None if there is none, or it cannot be read."""
    said = [_whole(answer.headers.get(f"x-ratelimit-{name}")) for name in ("limit", "remaining", "reset")]
    limit, remaining, reset = said
    if limit is None or remaining is None or reset is None:
        return None
    return _allowance(_Remaining(limit, remaining, reset), _sent_at(answer))


def bucket(answer: Answer) -> str | None:
    """The bucket that the headers refer to."""
    name = answer.headers.get("x-ratelimit-resource", "")
    return name if _BUCKET.fullmatch(name) else None


def allowance_of(answer: Answer, wanted: str) -> Allowance | None:
    """The allowance of one bucket in an answer of the free call `/rate_limit`."""
    said = msgspec.json.decode(answer.body, type=_RateLimit).resources.get(wanted)
    return None if said is None else _allowance(said, _sent_at(answer))


def limit_of(answer: Answer) -> LimitKind | None:
    """The limit behind a 403 or 429; None if it has another reason."""
    # Before the other checks: an explicit pause holds, whatever the window has left.
    if "retry-after" in answer.headers:
        return LimitKind.SECONDARY
    if answer.headers.get("x-ratelimit-remaining") == "0":
        return LimitKind.PRIMARY
    text = answer.body[:2_000].decode(errors="replace").lower()
    if answer.status == 429 or any(word in text for word in _WORDS):
        return LimitKind.SECONDARY
    return None


def asked_wait_ms(answer: Answer) -> int | None:
    """The wait that an answer of any status asks for; None if it asks for none."""
    asked = answer.retry_after(longest=_LONGEST_PAUSE)
    return None if asked is None else max(1_000, milliseconds(asked))


def rest(answer: Answer, reason: str) -> Reading:
    """The meaning of a secondary limit: the credential is blocked for the requested time, or for a growing one."""
    asked_ms = asked_wait_ms(answer)
    return Reading(
        verdict=Verdict.LATER, reason=reason, blocked_ms=asked_ms or LEAST_PAUSE_MS, is_guess=asked_ms is None
    )


def _allowance(said: _Remaining, sent_at: datetime) -> Allowance:
    left_ms = round((said.reset - sent_at.timestamp()) * 1_000)
    return Allowance(
        limit=said.limit,
        # Never more than the limit, whatever the answer says.
        remaining=min(said.remaining, said.limit),
        window=said.reset,
        # Bounded: a wrong clock or header must not block a credential for years.
        resets_in_ms=max(-LONGEST_PAUSE_MS, min(left_ms, LONGEST_PAUSE_MS)),
    )


def _sent_at(answer: Answer) -> datetime:
    """The upstream's clock, by which the reset is measured; the local clock if the answer has no date."""
    return answer.date or answer.received_at


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 15 else None


_LONGEST_MESSAGE = 300
_REFUSED = frozenset({403, 404})
_IMPLIED = {
    "repo": {"repo:status", "repo_deployment", "public_repo", "repo:invite", "security_events"},
    "admin:org": {"write:org", "read:org"},
    "write:org": {"read:org"},
    "user": {"read:user", "user:email", "user:follow"},
    "project": {"read:project"},
}
"""Scopes that another scope includes."""


class _Message(msgspec.Struct):
    message: str = ""


def explain(answer: Answer) -> str:
    """Status, message, and missing rights of the token."""
    try:
        message = msgspec.json.decode(answer.body, type=_Message).message
    except UNDECODABLE:
        message = ""
    said = f"{answer.status}: {message[:_LONGEST_MESSAGE]}" if message else f"status {answer.status}"
    lacks = [lack for lack in (_missing_sign_on(answer), _missing_scope(answer)) if lack]
    return "; ".join([said, *lacks])


def left_out(answer: Answer) -> list[str]:
    """Why a list is incomplete: organizations that require an authorization of the token are omitted."""
    rule, _, rest = answer.headers.get("x-github-sso", "").partition(";")
    if answer.status != 200 or rule.strip() != "partial-results":
        return []
    numbers = rest.strip().removeprefix("organizations=")[:_LONGEST_MESSAGE]
    return [f"GitHub omitted the organizations {numbers}: authorize the token for their single sign-on"]


def _missing_sign_on(answer: Answer) -> str:
    rule, _, rest = answer.headers.get("x-github-sso", "").partition(";")
    if answer.status not in _REFUSED or rule.strip() != "required":
        return ""
    link = urlsplit(rest.strip().removeprefix("url="))
    where = f" at {link.scheme}://{link.netloc}{link.path}" if link.netloc else ""
    return f"the organization requires single sign-on: authorize the token{where}"


def _missing_scope(answer: Answer) -> str:
    """The message about a missing scope. Only classic tokens have scopes."""
    needed, granted = (_scopes(answer, name) for name in ("x-accepted-oauth-scopes", "x-oauth-scopes"))
    if answer.status not in _REFUSED or not needed or granted is None:
        return ""
    held = granted.union(*(_implied(scope) for scope in granted))
    if needed & held:
        return ""
    has = f"it has {', '.join(sorted(granted))}" if granted else "it has none"
    return f"the token may lack a scope: GitHub asks for {' or '.join(sorted(needed))}, and {has}"


def _implied(scope: str) -> set[str]:
    direct = _IMPLIED.get(scope, set[str]())
    return direct.union(*(_implied(each) for each in direct))


def _scopes(answer: Answer, name: str) -> set[str] | None:
    said = answer.headers.get(name)
    return None if said is None else {scope.strip() for scope in said.split(",") if scope.strip()}
