"""Checks credentials at GitHub: the account and scopes of a token, what is left, and tokens of apps.

GitHub limits accounts and installations, not tokens: all tokens of an account share its quota. So an allowance is named
after the number of the account or installation, and the host that assigned the number.

A GitHub App signs its requests with its key, and requests tokens of its installations, which last an hour. The
signature is valid for nine minutes, since GitHub accepts ten at most, and starts one minute in the past, since clocks
differ. If the local clock differs by more, the request is signed again with the time of GitHub's answer.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import UNDECODABLE
from tidegate.engine.credentials import (
    Account,
    Installation,
    IssuedToken,
    SecretRefused,
    SecretReport,
    SecretUncheckable,
)
from tidegate.engine.credentials.authority import BucketReport
from tidegate.engine.upstream import Answer, Request
from tidegate.engine.upstream.messages import shown
from tidegate.engine.upstream.redirects import is_redirect
from tidegate.systems.github import limits
from tidegate.systems.github.limits import explain
from tidegate.systems.github.requests import FREE, GithubCall, require_api_url, to_request

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
    import jwt  # imported here because most processes use no app

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


T = TypeVar("T")

_LONGEST_HOST = 60
_LATEST_S = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())


class RequestSender(Protocol):
    """Sends requests without permits."""

    async def fetch(self, request: Request) -> Answer:
        """Send one request; raises `UpstreamFailed`."""
        ...


class _TokenUser(msgspec.Struct):
    id: int
    login: str


class _Left(msgspec.Struct):
    limit: int
    remaining: int
    reset: int


class _RateLimits(msgspec.Struct):
    resources: dict[str, _Left]


class GithubAuthority:
    """The `Authority` of GitHub.

    These calls take no permit of the gate: they are few, the allowance that they spend is not known before, and the
    one that spends quota is not made if nothing is left.
    """

    def __init__(self, caller: RequestSender, api_url: str, clock: Clock | None = None) -> None:
        self._caller, self._clock = caller, clock or SystemClock()
        self._api_url = require_api_url(api_url)
        host = urlsplit(self._api_url).netloc
        self._host = host if len(host) <= _LONGEST_HOST else sha256(host.encode()).hexdigest()[:16]

    @property
    def audience(self) -> str:
        """The address of the API."""
        return self._api_url

    def account_of(self, installation: Installation) -> Account:
        """The account of an installation, which has its own allowance."""
        name = f"installation-{installation.installation_id}"
        return Account(allowance=f"{name}@{self._host}", login=name)

    async def check(self, secret: str, *, identify: bool) -> SecretReport:
        """Read what is left, which is free, and then the account, unless nothing is left for that call."""
        # The free call first: it also shows whether the second one, which spends quota, may be made.
        answer = await self._ask(FREE, secret)
        left = _left(answer)
        core = left.get("core")
        if not identify or (core is not None and core.remaining == 0):
            return SecretReport(account=None, left=left)
        answer = await self._ask("/user", secret)
        user = _decoded(answer, _TokenUser)
        account = Account(allowance=f"user-{user.id}@{self._host}", login=user.login)
        return SecretReport(account=account, scopes=_scopes(answer), expires_at=_expiry(answer), left=left)

    async def issue(self, installation: Installation, private_key: str) -> IssuedToken:
        """Issue a token of an installation. Raises `SecretRefused` if the app is gone, suspended or has another key."""
        answer = await ask_for_token(
            self._caller.fetch, installation, private_key, api_url=self._api_url, now=self._clock.now()
        )
        if answer.status == 404:
            raise SecretRefused(f"the app {installation.app_id} has no installation {installation.installation_id}")
        _require_success(answer)
        return read_token(answer)

    async def _ask(self, path: str, secret: str) -> Answer:
        request = to_request(GithubCall(path=path), api_url=self._api_url, secret=secret, purpose="github.credentials")
        answer = await self._caller.fetch(request)
        # GitHub Enterprise can be configured without limits, and then answers 404.
        if not (path == FREE and answer.status == 404):
            _require_success(answer)
        return answer


def _require_success(answer: Answer) -> None:
    """Raise `SecretRefused` or `SecretUncheckable` for an error answer."""
    match answer.status:
        case 200 | 201:
            return
        case 401:
            raise SecretRefused(explain(answer))
        # A limit says nothing about the secret.
        case 403 | 429 if limits.limit_of(answer) is not None:
            raise SecretUncheckable(explain(answer))
        case 403 | 404:
            raise SecretRefused(explain(answer))
        case _ if is_redirect(answer):
            moved_to = shown(answer.headers.get("Location", ""))
            raise SecretUncheckable(f"{explain(answer)}; the API is at {moved_to}: set github.api_url to its address")
        case _:
            raise SecretUncheckable(explain(answer))


def _left(answer: Answer) -> Mapping[str, BucketReport]:
    if answer.status != 200:
        return {}
    said = _decoded(answer, _RateLimits).resources
    return {
        name: BucketReport(limit=one.limit, remaining=one.remaining, resets_at=_moment(one.reset))
        for name, one in said.items()
    }


def _moment(seconds: int) -> datetime:
    """The time of a reset; the first or last possible one for a number that is no time."""
    return datetime.fromtimestamp(max(0, min(seconds, _LATEST_S)), UTC)


def _scopes(answer: Answer) -> list[str] | None:
    """The scopes of a classic token; other kinds have permissions, which GitHub does not report."""
    said = answer.headers.get("x-oauth-scopes")
    return None if said is None else [scope.strip() for scope in said.split(",") if scope.strip()]


def _expiry(answer: Answer) -> datetime | None:
    said = answer.headers.get("github-authentication-token-expiration", "").replace(" UTC", " +0000")
    try:
        return datetime.strptime(said, "%Y-%m-%d %H:%M:%S %z").astimezone(UTC)
    except ValueError:
        return None


def _decoded(answer: Answer, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(answer.body, type=shape)
    except UNDECODABLE:
        raise SecretUncheckable(f"{answer.status} with a body that cannot be read") from None
