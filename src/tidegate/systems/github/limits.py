"""What an answer says of our allowance, and whether it is a refusal because of a limit."""

from datetime import datetime
from enum import StrEnum

import msgspec

from tidegate.engine.source import Reading, Verdict
from tidegate.engine.upstream import Answer
from tidegate.primitives.gate import Allowance

LEAST_PAUSE_MS = 60_000
"""Where a secondary limit does not say how long, no less than this."""
LONGEST_PAUSE_MS = 24 * 3_600_000
_WORDS = ("rate limit", "abuse detection", "login attempts", "try again later")
"""In refusals that pass: of a limit, or of the credential itself after others have failed to log in with it."""


class Limit(StrEnum):
    """Why we were refused."""

    PRIMARY = "primary"  # the window is empty; its allowance says until when
    SECONDARY = "secondary"  # too fast, too much at once, or nobody says why


class _Said(msgspec.Struct):
    limit: int
    remaining: int
    reset: int


class _RateLimit(msgspec.Struct):
    resources: dict[str, _Said]


def allowance(answer: Answer) -> Allowance | None:
    """What the headers tell; None where they tell nothing, or nothing that can be read."""
    said = [_whole(answer.headers.get(f"x-ratelimit-{name}")) for name in ("limit", "remaining", "reset")]
    limit, remaining, reset = said
    if limit is None or remaining is None or reset is None:
        return None
    return _allowance(_Said(limit, remaining, reset), _sent_at(answer))


def bucket(answer: Answer) -> str | None:
    """The allowance that the headers are about."""
    name = answer.headers.get("x-ratelimit-resource", "")
    return name if name.replace("_", "").isalnum() else None


def allowance_of(answer: Answer, wanted: str) -> Allowance | None:
    """What the free call `/rate_limit` tells of one bucket."""
    said = msgspec.json.decode(answer.body, type=_RateLimit).resources.get(wanted)
    return None if said is None else _allowance(said, _sent_at(answer))


def limit_of(answer: Answer) -> Limit | None:
    """Which limit a 403 or 429 stands for; None if it is no limit at all."""
    if "retry-after" in answer.headers:
        return Limit.SECONDARY
    if answer.headers.get("x-ratelimit-remaining") == "0":
        return Limit.PRIMARY
    text = answer.body[:2_000].decode(errors="replace").lower()
    if answer.status == 429 or any(word in text for word in _WORDS):
        return Limit.SECONDARY
    return None


def asked_wait_ms(answer: Answer) -> int | None:
    """How long the upstream asks us to wait, with whatever status; None where it does not say."""
    wait_s = _whole(answer.headers.get("retry-after"))
    return None if wait_s is None else min(max(1, wait_s) * 1_000, LONGEST_PAUSE_MS)


def rest(answer: Answer, reason: str) -> Reading:
    """What a secondary limit means: the credential has to rest, for as long as it says, or else longer and longer."""
    asked_ms = asked_wait_ms(answer)
    return Reading(
        verdict=Verdict.LATER, reason=reason, blocked_ms=asked_ms or LEAST_PAUSE_MS, is_guess=asked_ms is None
    )


def _allowance(said: _Said, sent_at: datetime) -> Allowance:
    left_ms = round((said.reset - sent_at.timestamp()) * 1_000)
    return Allowance(
        limit=said.limit,
        remaining=min(said.remaining, said.limit),
        window=said.reset,
        resets_in_ms=max(-LONGEST_PAUSE_MS, min(left_ms, LONGEST_PAUSE_MS)),
    )


def _sent_at(answer: Answer) -> datetime:
    """By the upstream's clock, which is also that of the reset; ours only where it does not tell."""
    return answer.date or answer.received_at


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 15 else None
