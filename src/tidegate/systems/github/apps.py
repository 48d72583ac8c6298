"""GitHub Apps: whoever has an app's key signs that he speaks for it, and is issued tokens of its installations.

A token lasts an hour. What is signed lasts nine minutes, since GitHub takes ten at most, and begins a minute ago, since
clocks differ. Where ours differs by more, GitHub's own answer tells the time, and it is signed once more with that.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import jwt
import msgspec

from tidegate.core.errors import UNDECODABLE
from tidegate.engine.credentials import Installation, IssuedToken, NotNow
from tidegate.engine.upstream import Answer, Request
from tidegate.systems.github.requests import Call, to_request

_BACKDATED = timedelta(minutes=1)
_LASTS = timedelta(minutes=9)
_TOLERATED = timedelta(seconds=30)
"""GitHub forgives a clock that is off by this much, whatever we do."""


class _Issued(msgspec.Struct):
    token: str
    expires_at: datetime

    def __repr__(self) -> str:
        return f"_Issued(expires_at={self.expires_at})"


def sign(app_id: int, private_key: str, *, now: datetime) -> str:
    """What proves that we speak for an app."""
    claims = {"iat": now - _BACKDATED, "exp": now + _LASTS, "iss": str(app_id)}
    return jwt.encode(claims, private_key, algorithm="RS256")


async def ask_for_token(
    fetch: Callable[[Request], Awaitable[Answer]],
    installation: Installation,
    private_key: str,
    *,
    api_url: str,
    now: datetime,
) -> Answer:
    """GitHub's answer to the wish for a token; asked once more if a 401 may come from our clock."""
    answer = await fetch(_wish(installation, private_key, api_url, now))
    theirs = answer.date
    if answer.status == 401 and theirs is not None and abs(theirs - answer.received_at) > _TOLERATED:
        answer = await fetch(_wish(installation, private_key, api_url, theirs))
    return answer


def read_token(answer: Answer) -> IssuedToken:
    """The token that was issued, and for how long: by GitHub's clock, whatever ours says."""
    try:
        issued = msgspec.json.decode(answer.body, type=_Issued)
    except UNDECODABLE:
        raise NotNow(f"{answer.status} with a body that cannot be read") from None
    lasts = issued.expires_at - (answer.date or answer.received_at)
    return IssuedToken(token=issued.token, lasts_s=max(0.0, lasts.total_seconds()))


def _wish(installation: Installation, private_key: str, api_url: str, now: datetime) -> Request:
    asked = to_request(
        Call(path=f"/app/installations/{installation.installation_id}/access_tokens"),
        api_url=api_url,
        secret=sign(installation.app_id, private_key, now=now),
        purpose="github.app_token",
    )
    return msgspec.structs.replace(asked, method="POST")
