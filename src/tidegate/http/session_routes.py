"""Routes of `/v1/session`: log in with a key, show the current session, log out."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.clock import from_ms
from tidegate.core.errors import ServerRefused, Unavailable
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.http.access import Access
from tidegate.http.asgi import HttpRequest, speaks_tls
from tidegate.http.authentication import unauthenticated
from tidegate.http.callers import CSRF_HEADER, LOOPBACK, AuthenticationMethod, HttpCaller, Role, caller_of
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.routes import route
from tidegate.http.session_store import EVERY_SESSION, LONGEST_SUBJECT, OpenSession, SessionRegistry

log = get_logger(__name__)

TAG = "session"
ADDRESS = "/v1/session"
SessionId = Annotated[str, Meta(min_length=1, max_length=LONGEST_SUBJECT, pattern="^[A-Za-z0-9_-]+$")]
_KEPT = {"Set-Cookie": "The session, for browsers."}


class Login(RequestInput, frozen=True, kw_only=True):
    """The API key for a login."""

    key: Annotated[
        str, Meta(min_length=1, max_length=1024, extra_json_schema={"format": "password", "writeOnly": True})
    ]

    def __repr__(self) -> str:
        return "Login()"


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's role and session."""

    role: Role
    needs_key: bool
    """False if no key is set: clients on this machine may do everything."""
    csrf: str | None
    """The value of `X-Tidegate-CSRF` for requests that change something; null without a session."""
    expires_at: datetime | None
    """When the session expires; null without a session."""


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of open sessions."""

    sessions: list[OpenSession]


class Revoked(msgspec.Struct, frozen=True, kw_only=True):
    """What was revoked: the id of a session or of a key, or `*` for all sessions."""

    revoked: str


class LoggedOut(msgspec.Struct, frozen=True, kw_only=True):
    """Confirms that the cookie was removed."""

    logged_out: bool


class SessionRoutes:
    """Handlers of the session routes."""

    def __init__(self, access: Access) -> None:
        self._access, self._sessions = access, access.sessions

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The session routes. The path is open, because a login happens before authentication."""
        no_caller = (ProblemType.KEY_NEEDED,)
        return [
            route("GET", ADDRESS, self.show_session, TAG, problems=no_caller, is_open=True),
            route(
                "POST",
                ADDRESS,
                self.log_in,
                TAG,
                problems=(*no_caller, ProblemType.TOO_MANY_ATTEMPTS),
                headers=_KEPT,
                is_open=True,
            ),
            route(
                "DELETE",
                ADDRESS,
                self.log_out,
                TAG,
                problems=(ProblemType.CSRF_NEEDED,),
                headers=_KEPT,
                sent={CSRF_HEADER: "The value of `csrf`."},
                is_open=True,
            ),
            route("GET", "/v1/sessions", self.list_sessions, TAG),
            route("DELETE", "/v1/sessions", self.revoke_sessions, TAG),
            route("DELETE", "/v1/sessions/{session}", self.revoke_session, TAG),
        ]

    async def show_session(self, request: HttpRequest) -> SessionView:
        """Show the role and session of the caller. 401 without a key or a session."""
        caller = caller_of(request)
        if caller.role is None:
            raise unauthenticated(request.headers)
        return self._view(caller, caller.role)

    async def log_in(self, body: Login, request: HttpRequest) -> Response[SessionView]:
        """Log in: a key is exchanged for a cookie that scripts cannot read and other sites cannot use.

        After too many wrong keys, from one address or from all, every key is answered with 429 for a while, also a
        right one: otherwise the answer would show an attacker which key is right. If no key is needed, nothing happens.
        """
        if not self._access.keyring:
            return Response(self._view(LOOPBACK, Role.OPERATE))
        address = self._access.addresses.of_scope(request.scope)
        key = await self._access.find(body.key, address, at_login=True)
        if key is None:
            metrics.HTTP_LOGINS.labels("wrong").inc()
            log.warning("http.login_refused", address=address)
            raise unauthenticated(request.headers, "the key is not known")
        token, caller = await self._access.open_session(key, address)
        metrics.HTTP_LOGINS.labels("good").inc()
        log.info("http.logged_in", address=address, role=key.role.value, key_id=key.id)
        return Response(self._view(caller, key.role), headers=self._cookie(request, token))

    async def log_out(self, request: HttpRequest) -> Response[LoggedOut]:
        """Log out: the cookie is removed and the session is revoked. Without a session nothing happens.

        While the database is unavailable, only the cookie is removed.
        """
        caller = caller_of(request)
        # The route is open, so admission has not checked the token.
        caller.require_own_page(request.headers.get(CSRF_HEADER))
        if caller.how is AuthenticationMethod.SESSION:
            await self._revoke_own(caller)
            log.info("http.logged_out", key_id=caller.key_id)
        return Response(LoggedOut(logged_out=True), headers=self._cookie(request, ""))

    async def list_sessions(self) -> SessionList:
        """List the open sessions, newest first, at most 1,000."""
        return SessionList(sessions=list(await self._registry.listed()))

    async def revoke_session(self, session: SessionId) -> Revoked:
        """Revoke one session, or all sessions of a key by the key's id. It takes effect in every process."""
        await self._registry.revoke(session)
        return Revoked(revoked=session)

    async def revoke_sessions(self) -> Revoked:
        """Revoke all sessions, also that of the caller. Keys stay valid for new logins."""
        await self._registry.revoke()
        return Revoked(revoked=EVERY_SESSION)

    @property
    def _registry(self) -> SessionRegistry:
        if self._access.registry is None:
            raise RequestFailed(ProblemType.NOT_FOUND, "this server does not list sessions")
        return self._access.registry

    async def _revoke_own(self, caller: HttpCaller) -> None:
        if self._access.registry is not None:
            with suppress(Unavailable, ServerRefused):
                await self._access.registry.revoke(caller.session_id)

    def _view(self, caller: HttpCaller, role: Role) -> SessionView:
        return SessionView(
            role=role,
            needs_key=bool(self._access.keyring),
            csrf=caller.csrf,
            expires_at=None if caller.until_ms is None else from_ms(caller.until_ms),
        )

    def _cookie(self, request: HttpRequest, token: str) -> dict[str, str]:
        is_secure = speaks_tls(request.scope["scheme"], request.headers)
        return {"Set-Cookie": self._sessions.cookie(token, is_secure=is_secure)}
