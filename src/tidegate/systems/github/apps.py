"""GitHub Apps: signs requests with an app's key, and requests tokens of its installations.

A token lasts an hour. The signature is valid for nine minutes, since GitHub accepts ten at most, and starts one minute
in the past, since clocks differ. If the local clock differs by more, the request is signed again with the time of
GitHub's answer.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import jwt
import msgspec

from tidegate.core.errors import UNDECODABLE
from tidegate.engine.credentials import Installation, IssuedToken, SecretUncheckable
from tidegate.engine.upstream import Answer, Request
from tidegate.systems.github.requests import GithubCall, to_request

_BACKDATED = timedelta(minutes=1)
_LASTS = timedelta(minutes=9)
_TOLERATED = timedelta(seconds=30)
"""GitHub accepts clocks that differ by up to this much."""


class _Issued(msgspec.Struct):
    token: str
    expires_at: datetime

    def __repr__(self) -> str:
        return f"_Issued(expires_at={self.expires_at})"


def sign(app_id: int, private_key: str, *, now: datetime) -> str:
    """The signed token that authenticates the app."""
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
    """Request a token; repeated once if a 401 may be caused by the local clock."""
    answer = await fetch(_token_request(installation, private_key, api_url, now))
    theirs = answer.date
    # The signature contains the local time. The `Date` of the refusal shows whether that was the reason.
    if answer.status == 401 and theirs is not None and abs(theirs - answer.received_at) > _TOLERATED:
        answer = await fetch(_token_request(installation, private_key, api_url, theirs))
    return answer


def read_token(answer: Answer) -> IssuedToken:
    """The issued token, with its lifetime by GitHub's clock."""
    try:
        issued = msgspec.json.decode(answer.body, type=_Issued)
    except UNDECODABLE:
        raise SecretUncheckable(f"{answer.status} with a body that cannot be read") from None
    # By the clock that set `expires_at`: a wrong local clock must not use an expired token.
    lasts = issued.expires_at - (answer.date or answer.received_at)
    return IssuedToken(token=issued.token, lasts_s=max(0.0, lasts.total_seconds()))


def _token_request(installation: Installation, private_key: str, api_url: str, now: datetime) -> Request:
    asked = to_request(
        GithubCall(path=f"/app/installations/{installation.installation_id}/access_tokens"),
        api_url=api_url,
        secret=sign(installation.app_id, private_key, now=now),
        purpose="github.app_token",
    )
    return msgspec.structs.replace(asked, method="POST")
