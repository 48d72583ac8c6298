"""Builds the ASGI application: Litestar routes requests behind `Front`; raw handlers are mounted beside it.

The outermost layer authenticates, counts and logs each request, and answers errors with problem documents.
"""

import asyncio
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

from litestar import Litestar, Response
from litestar.connection import ASGIConnection
from litestar.exceptions import (
    ClientException,
    HTTPException,
    InternalServerException,
    LitestarException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler

from tidegate.core.errors import ContractBroken, Unavailable
from tidegate.core.ids import new_id
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.http.access import Access
from tidegate.http.asgi import (
    IS_HEAD,
    Application,
    HttpRequest,
    Message,
    Receive,
    Scope,
    Send,
    check_head,
    headers_of,
    put_on,
)
from tidegate.http.authentication import Authenticator, pattern_of
from tidegate.http.callers import CALLER, LONGEST_PATH, REQUEST_ID, HttpCaller, Role, authorise
from tidegate.http.dispatch import ANSWER_WITHIN
from tidegate.http.openapi import Documentation
from tidegate.http.problems import ProblemType, RequestFailed, problem_response, to_request_failed
from tidegate.http.raw_handlers import RawHandler
from tidegate.http.routes import RouteDeclaration, declaration_of
from tidegate.http.settings import HttpSettings
from tidegate.runtime.outage import Outage

log = get_logger(__name__)

LIFECYCLE = "tidegate.lifecycle"
"""The key of the `RequestLifecycle` in the scope of a request."""


class RequestGuard:
    """The ASGI application around the router."""

    def __init__(self, app: Application, settings: HttpSettings, *, authenticator: Authenticator) -> None:
        self._app, self._authenticator, self._outage = app, authenticator, Outage("http")
        self._answer_within_s = settings.answer_within.total_seconds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; see ASGI."""
        lifecycle = RequestLifecycle(scope, send, self._outage)
        scope |= {LIFECYCLE: lifecycle, REQUEST_ID: lifecycle.request_id, ANSWER_WITHIN: self._answer_within_s}
        try:
            check_head(scope)
            headers = headers_of(scope)
            peer = str(scope["client"][0]) if scope.get("client") else None
            caller = await self._authenticator.admit(
                scope["method"], path_within(scope), headers, scope["scheme"], peer
            )
            scope[CALLER] = caller
            await self._serve(caller, scope, receive, lifecycle)
        except Exception as error:
            failure = lifecycle.explain(error)
            if not lifecycle.has_begun:
                await _send(problem_response(failure, lifecycle.request_id), lifecycle)
        finally:
            lifecycle.end()

    async def report(self, error: Exception, scope: Scope, send: Send) -> None:
        """Log an error of a raw handler, and answer its request with a problem."""
        lifecycle = RequestLifecycle(scope, send, self._outage)
        try:
            await _send(problem_response(lifecycle.explain(error), lifecycle.request_id), lifecycle)
        finally:
            lifecycle.end()

    async def _serve(self, caller: HttpCaller, scope: Scope, receive: Receive, lifecycle: "RequestLifecycle") -> None:
        """Call the application. A stream ends when the caller's session expires; a reconnect then needs a login."""
        # Wall-clock time until the end of the session, converted to a span once per request.
        session = asyncio.timeout(None if caller.until_ms is None else caller.until_ms / 1000 - time.time())
        try:
            async with session:
                await self._app(scope, receive, lifecycle.send)
        except TimeoutError:
            # Another timeout, or nothing was sent yet: the error is answered by a problem.
            if not session.expired() or not lifecycle.has_begun:
                raise
            await lifecycle.send({"type": "http.response.body", "body": b"", "more_body": False})


def path_within(scope: Scope) -> str:
    """The path of a request, without the path on which this application is mounted in another one."""
    path, root = scope["path"], scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


async def _send(response: Response[bytes], lifecycle: "RequestLifecycle") -> None:
    headers = {
        "content-type": str(response.media_type),
        "content-length": str(len(response.content)),
        **response.headers,
    }
    pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await lifecycle.send({"type": "http.response.start", "status": response.status_code, "headers": pairs})
    await lifecycle.send({"type": "http.response.body", "body": response.content})


class RequestLifecycle:
    """Records one request: its id, status, duration and error."""

    def __init__(self, scope: Scope, send: Send, outage: Outage) -> None:
        self.request_id = new_id()
        self._outage, self._error = outage, ""
        self.status, self._began_to_answer = 0, 0.0
        self._scope, self._send = scope, send
        self.route: RouteDeclaration | None = None
        """The route that answers; None until it is known."""
        self._began = time.monotonic()

    @property
    def has_begun(self) -> bool:
        """Whether the head of the answer was sent, so that the status cannot be changed."""
        return self.status != 0

    async def send(self, message: Message) -> None:
        """Send a message, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status, self._began_to_answer = message["status"], time.monotonic()
            headers = [(name.lower(), value) for name, value in message["headers"]]
            headers += [(b"date", formatdate(usegmt=True).encode()), (b"x-request-id", self.request_id.encode())]
            if all(name != b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            put_on(headers, self._scope)
            message = {**message, "headers": headers}
        await self._send(message)

    def explain(self, error: Exception) -> RequestFailed:
        """Convert an exception to a problem for the caller; details that callers may not see are logged."""
        # Litestar wraps errors that occur while it prepares a request; the cause decides.
        cause = error.__cause__ if isinstance(error, LitestarException) else None
        error = cause if isinstance(cause, Exception) else error
        failure = to_request_failed(error)
        if failure is None:
            log.error("http.failed", **self._facts(), exc_info=error)
            return RequestFailed(ProblemType.FAILED, "an unexpected error occurred; the server's log has the details")
        # Errors of servers, and errors after the head was sent, which the caller cannot see as a status.
        if (failure.status >= 500 and failure is not error) or self.has_begun:
            self._error = str(error) or type(error).__name__
            if isinstance(error, Unavailable) and error.server:
                self._outage.note(error)
            else:
                log.warning("http.unavailable", **self._facts(), error=self._error)
        return failure

    def end(self) -> None:
        """Count and log the request."""
        took_s = time.monotonic() - self._began
        # One label for all unknown paths: otherwise clients could create any number of metrics.
        route = self.route.path if self.route else "unknown"
        metrics.HTTP_REQUESTS.labels(route, self._scope["method"] if self.route else "unknown", str(self.status)).inc()
        if self.has_begun:
            metrics.HTTP_REQUEST_SECONDS.labels(route).observe(self._began_to_answer - self._began)
        facts = {**self._facts(), "status": self.status, "took_ms": round(took_s * 1000, 1)}
        if self._error:
            facts["error"] = self._error
        is_routine = self._scope["method"] in ("GET", "HEAD") and self.status < 400
        if is_routine or (self.route is not None and self.route.is_high_volume):
            log.debug("http.answered", **facts)
        else:
            log.info("http.answered", **facts)

    def _facts(self) -> dict[str, Any]:
        path = self._scope["path"][:LONGEST_PATH]
        return {"request_id": self.request_id, "method": self._scope["method"], "path": path}


def build_application(
    routes: Sequence[HTTPRouteHandler],
    settings: HttpSettings,
    *,
    access: Access | None = None,
    absent: Mapping[str, str] | None = None,
    raw: Mapping[str, RawHandler] | None = None,
) -> Application:
    """Build an ASGI application of `routes` and their documentation pages.

    `access` must be the object that session routes use. `absent` maps a prefix without routes to the reason that a
    404 states. `raw` mounts ASGI handlers on prefixes; each gets the application for requests that it does not answer.
    """
    everything = [*routes, *Documentation(routes, needs_key=bool(settings.keys)).routes()]
    declared = [found for found in map(declaration_of, everything) if found is not None]
    authenticator = Authenticator(access or Access(settings), _open_routes(declared))
    application = RequestGuard(
        _Router(everything, declared, settings, absent or {}), settings, authenticator=authenticator
    )
    return _Mounted(application, raw) if raw else application


class _Mounted:
    """Passes each request to the raw handler of its prefix, and all others to the application."""

    def __init__(self, application: RequestGuard, handlers: Mapping[str, RawHandler]) -> None:
        self._application = application
        self._handlers = [(prefix, make(application)) for prefix, make in handlers.items()]
        found = [(prefix.encode(), getattr(handler, "answer_at_once", None)) for prefix, handler in self._handlers]
        self._at_once = [(prefix, answer) for prefix, answer in found if answer is not None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; see ASGI."""
        path = scope["path"]
        for prefix, handler in self._handlers:
            if path.startswith(prefix):
                try:
                    await handler(scope, receive, send)
                except Exception as error:
                    await self._application.report(error, scope, send)
                return
        await self._application(scope, receive, send)

    def answer_at_once(self, address: bytes, scope: Scope) -> Sequence[bytes] | None:
        """See `AnswerAtOnce`."""
        for prefix, answer in self._at_once:
            if address.startswith(prefix):
                try:
                    return answer(address, scope)
                except Exception:  # the handler meets the same error in `__call__`, which reports it
                    return None
        return None


def _open_routes(declared: Iterable[RouteDeclaration]) -> set[str]:
    """The paths that need no key for any method; admission does not distinguish methods."""
    places: dict[str, dict[str, RouteDeclaration]] = {}
    for route in declared:
        methods = places.setdefault(route.route, {})
        if route.method in methods:
            raise ContractBroken(f"{route.method} {route.path} is declared twice")
        methods[route.method] = route
    for address, methods in places.items():
        if len({route.is_open for route in methods.values()}) != 1:
            raise ContractBroken(f"{address} needs a key for some methods only")
    return {address for address, methods in places.items() if all(route.is_open for route in methods.values())}


class _Router:
    """Litestar, extended by HEAD for each GET, path parameters with slashes, and exact matching of trailing slashes."""

    def __init__(
        self,
        routes: Sequence[HTTPRouteHandler],
        declared: Sequence[RouteDeclaration],
        settings: HttpSettings,
        absent: Mapping[str, str],
    ) -> None:
        self._absent, self._largest_body = absent, settings.largest_body
        self._quoted = list(dict.fromkeys(pattern_of(route.route) for route in declared if route.quoted))
        self._litestar: Any = Litestar(
            routes,
            guards=[_authorise],
            exception_handlers={Exception: self._explain},
            request_max_body_size=settings.largest_body,
            openapi_config=None,
            logging_config=None,
            debug=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route a request to its handler."""
        path = path_within(scope)
        routed = self._with_quoted_names(path)
        inner: Any = {**scope, "path": scope["path"].removesuffix(path) + routed}
        if scope["method"] == "HEAD":
            inner |= {"method": "GET", IS_HEAD: True}
        elif scope["method"] == "OPTIONS":
            inner["method"] = "CONNECT"  # no route has CONNECT; Litestar would answer OPTIONS by itself
        # Litestar ignores repeated and trailing slashes. Two addresses of one resource would
        # confuse caches and access rules.
        if "//" in routed or (routed.endswith("/") and routed != "/"):
            raise self._nothing_at(path)
        await self._litestar(inner, receive, send)

    def _with_quoted_names(self, path: str) -> str:
        """The path with slashes in parameters quoted, because Litestar splits paths at slashes."""
        for pattern in self._quoted:
            found = pattern.fullmatch(path)
            if found is not None:
                return _quoted(path, found)
        return path

    def _explain(self, request: HttpRequest, error: Exception) -> Response[bytes]:
        """Convert an exception to a problem response."""
        scope: Scope = request.scope
        lifecycle = scope[LIFECYCLE]
        failure = self._failure_of(request, error) if isinstance(error, HTTPException) else error
        return problem_response(lifecycle.explain(failure), lifecycle.request_id)

    def _failure_of(self, request: HttpRequest, error: HTTPException) -> Exception:
        scope: Scope = request.scope
        match error:
            case NotFoundException():
                return self._nothing_at(path_within(request.scope))
            case MethodNotAllowedException():
                return _only(set((error.headers or {}).get("allow", "").split(", ")))
            case ValidationException():
                return RequestFailed(ProblemType.INVALID, error.detail)
            case InternalServerException():
                return RequestFailed(ProblemType.TOO_SLOW, "the connection was closed before the body was complete")
            case HTTPException(status_code=413):
                route: RouteDeclaration | None = scope[LIFECYCLE].route
                most = self._largest_body if route is None else route.largest_body or self._largest_body
                return RequestFailed(ProblemType.TOO_LARGE, f"the limit is {most:,} bytes")
            case ClientException():
                return RequestFailed(ProblemType.BAD_REQUEST, error.detail)
            case _:
                return error

    def _nothing_at(self, path: str) -> RequestFailed:
        why = next((why for prefix, why in self._absent.items() if path.startswith(prefix)), None)
        return RequestFailed(ProblemType.NOT_FOUND, why or "there is no route with this path; /docs lists all routes")


async def _authorise(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Raise `RequestFailed` unless the caller has the needed role; handlers without a route have a default role."""
    scope: Scope = connection.scope
    method = scope["method"]
    declared = declaration_of(handler) if isinstance(handler, HTTPRouteHandler) else None
    needed = (Role.READ if method == "GET" else Role.OPERATE) if declared is None else declared.needed
    # Set before the role is checked, so that a refused request is counted under its route.
    scope[LIFECYCLE].route = declared
    is_logged = method != "GET" and not (declared is not None and declared.is_high_volume)
    authorise(scope, needed, is_logged=is_logged)


def _quoted(path: str, found: re.Match[str]) -> str:
    parts, at = list[str](), 0
    for name in found.groupdict():
        parts += [path[at : found.start(name)], quote(found[name], safe="")]
        at = found.end(name)
    return "".join([*parts, path[at:]])


def _only(methods: set[str]) -> RequestFailed:
    methods = methods - {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set())
    allowed = ", ".join(sorted(methods))
    return RequestFailed(ProblemType.METHOD_NOT_ALLOWED, f"only {allowed}", headers={"Allow": allowed})
