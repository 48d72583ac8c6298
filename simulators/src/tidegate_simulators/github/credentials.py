"""Tokens and their owners; apps, their keys and their installations."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from tidegate_simulators.errors import InvalidArgument, NotFound
from tidegate_simulators.github.answers import Answer, error, ok
from tidegate_simulators.github.calls import Call, Caller, Owner
from tidegate_simulators.github.config import LimitSettings
from tidegate_simulators.github.draws import iso
from tidegate_simulators.github.signatures import BadSignedToken, PublicKey, read_signed
from tidegate_simulators.github.windows import installation_quota
from tidegate_simulators.github.world import World

_LONGEST_APP_TOKEN_S = 600


class BadCredentials(Exception):
    """The token is unknown or revoked; the message is the one of the answer."""


@dataclass(frozen=True)
class App:
    """A GitHub App: its key authenticates requests for its installations."""

    id: int
    key: PublicKey
    installations: dict[int, int] = field(default_factory=dict[int, int])
    """Calls per window, by installation."""


@dataclass(frozen=True)
class _Token:
    caller: Caller
    expires: float | None = None


class Credentials:
    """All credentials that are accepted."""

    def __init__(self, world: World, limits: LimitSettings) -> None:
        self._world, self._limits = world, limits
        self._tokens: dict[str, _Token] = {}
        self._apps: dict[int, App] = {}
        self._issued = 0

    def token_of(self, login: str, ordinal: int = 0) -> str:
        """A token of this user; another ordinal, another token of the same owner. The same each time."""
        account = self._world.require_account(login)
        digest = blake2b(f"{self._world.shape.seed}/{account.id}/{ordinal}".encode(), digest_size=18).hexdigest()
        token = f"ghp_{digest}"
        owner = Owner("user", account.id, account.login)
        self._tokens.setdefault(token, _Token(Caller(owner, f"{account.login}#{ordinal}", _mark(token))))
        return token

    def restrict(self, token: str, *, scopes: Iterable[str] | None = None, is_signed_on: bool | None = None) -> None:
        """Take scopes from a token, or its authorization for the single sign-on of organizations."""
        if token not in self._tokens:
            raise NotFound("token", "(hidden)")
        caller = self._tokens[token].caller
        held = caller.scopes if scopes is None else frozenset(scopes)
        signed_on = caller.is_signed_on if is_signed_on is None else is_signed_on
        self._tokens[token] = _Token(replace(caller, scopes=held, is_signed_on=signed_on))

    def revoke(self, token: str) -> None:
        """Revoke a token; raises `NotFound` for an unknown one."""
        if token not in self._tokens:
            raise NotFound("token", "(hidden)")
        self._tokens[token] = _Token(self._tokens[token].caller, expires=0)

    def reinstate(self, token: str) -> None:
        """It is good again, as after a disturbance at the upstream."""
        if token not in self._tokens:
            raise NotFound("token", "(hidden)")
        self._tokens[token] = _Token(self._tokens[token].caller)

    def uninstall(self, app_id: int, installation: int) -> None:
        """Uninstall an app: it gets no more tokens, and its tokens are revoked."""
        if app_id not in self._apps or self._apps[app_id].installations.pop(installation, None) is None:
            raise NotFound("installation", installation)
        for token, known in self._tokens.items():
            if (known.caller.owner.kind, known.caller.owner.number) == ("installation", installation):
                self._tokens[token] = _Token(known.caller, expires=0)

    def register_app(self, app_id: int, public_key: str, installations: dict[int, tuple[int, int]]) -> App:
        """Make an app known; each installation with the repositories and users that it covers."""
        if not installations:
            raise InvalidArgument("installations", installations, "must name at least one")
        quotas = {number: installation_quota(self._limits.quota, *covers) for number, covers in installations.items()}
        app = App(app_id, PublicKey.from_pem(public_key), quotas)
        self._apps[app_id] = app
        return app

    def identify(self, authorization: str | None, address: str, at: float) -> Caller:
        """Return the caller of a request; raises `BadCredentials`."""
        if not authorization:
            return Caller(Owner("address", 0, address), f"no token, {address}")
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() not in ("bearer", "token") or not secret:
            raise BadCredentials("Bad credentials")
        if secret.count(".") == 2:
            return self._app(secret, at)
        token = self._tokens.get(secret)
        if token is None or (token.expires is not None and at >= token.expires):
            raise BadCredentials("Bad credentials")
        return token.caller

    def _app(self, signed: str, at: float) -> Caller:
        """An app by its signed token: of the right algorithm, in time, for ten minutes at most."""
        try:
            header, claims, message, signature = read_signed(signed)
        except BadSignedToken as broken:
            raise BadCredentials(str(broken)) from broken
        app = self._apps.get(_whole(claims.get("iss")))
        if app is None:
            raise BadCredentials("Integration not found")
        if header.get("alg") != "RS256" or not app.key.verifies(message, signature):
            raise BadCredentials("A JSON web token could not be decoded")
        issued, expires = _whole(claims.get("iat")), _whole(claims.get("exp"))
        if not 0 <= issued <= at:
            raise BadCredentials(
                "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued"
            )
        if not at < expires:
            raise BadCredentials("'Expiration time' claim ('exp') must be a numeric value representing the future time")
        if expires > at + _LONGEST_APP_TOKEN_S:
            raise BadCredentials("'Expiration time' claim ('exp') is too far in the future")
        return Caller(Owner("app", app.id, str(app.id)), f"app {app.id}", _mark(str(app.id)))

    def describe_app(self, call: Call) -> Answer:
        """Answer `GET /app` for an authenticated app."""
        if call.caller.owner.kind != "app":
            return error(401, "A JSON web token could not be decoded")
        return ok({"id": call.caller.owner.number, "slug": f"app-{call.caller.owner.number}", "name": "Tide"})

    def issue(self, call: Call) -> Answer:
        """A token of an installation, for its app only. It ends."""
        app = self._apps.get(call.caller.owner.number) if call.caller.owner.kind == "app" else None
        if app is None:
            return error(401, "A JSON web token could not be decoded")
        number = _whole(call.match.name)
        quota = app.installations.get(number)
        if quota is None:
            return error(404, "Not Found")
        self._issued += 1
        digest = blake2b(f"{self._world.shape.seed}/{number}/{self._issued}".encode(), digest_size=18).hexdigest()
        token, expires = f"ghs_{digest}", call.at + self._limits.installation_token_s
        caller = Caller(
            Owner("installation", number, str(number)), f"installation {number}", _mark(token), None, True, quota
        )
        self._tokens[token] = _Token(caller, expires)
        answer = ok(_issued(token, int(expires)))
        answer.status = 201
        return answer


def _issued(token: str, expires: int) -> dict[str, Any]:
    permissions = {"issues": "read", "metadata": "read", "contents": "read", "pull_requests": "read"}
    return {"token": token, "expires_at": iso(expires), "permissions": permissions, "repository_selection": "all"}


def _mark(secret: str) -> bytes:
    return blake2b(secret.encode(), digest_size=16).digest()


def _whole(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        return -1
