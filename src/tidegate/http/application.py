"""Builds the ASGI application: Litestar routes requests behind `Front`; raw handlers are mounted beside it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from litestar import Litestar, Response
from litestar.connection import ASGIConnection
from litestar.exceptions import (
    ClientException,
    HTTPException,
    InternalServerException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler

from tidegate.core.errors import ContractBroken
from tidegate.http.access import Access
from tidegate.http.asgi import IS_HEAD, Application, HttpRequest, Receive, Scope, Send
from tidegate.http.authentication import Authenticator, pattern_of
from tidegate.http.callers import Role, authorise
from tidegate.http.documentation import Documentation
from tidegate.http.problems import ProblemType, RequestFailed, problem_response
from tidegate.http.raw_handlers import RawHandler
from tidegate.http.request_guard import VISIT, RequestGuard, path_within
from tidegate.http.routes import RouteDeclaration, declaration_of
from tidegate.http.settings import HttpSettings


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
    door = Authenticator(access or Access(settings), _open_routes(declared))
    application = RequestGuard(_Router(everything, declared, settings, absent or {}), settings, door=door)
    return _mounted(application, raw) if raw else application


def _mounted(application: RequestGuard, handlers: Mapping[str, RawHandler]) -> Application:
    mounted = [(prefix, make(application)) for prefix, make in handlers.items()]

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        for prefix, handler in mounted:
            if path.startswith(prefix):
                try:
                    await handler(scope, receive, send)
                except Exception as error:
                    await application.report(error, scope, send)
                return
        await application(scope, receive, send)

    return dispatch


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
        visit = scope[VISIT]
        told = self._trouble_of(request, error) if isinstance(error, HTTPException) else error
        return problem_response(visit.explain(told), visit.request_id)

    def _trouble_of(self, request: HttpRequest, error: HTTPException) -> Exception:
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
                route: RouteDeclaration | None = scope[VISIT].route
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
    scope[VISIT].route = declared
    is_logged = method != "GET" and not (declared is not None and declared.is_chatter)
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
