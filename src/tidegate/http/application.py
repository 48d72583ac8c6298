"""The whole application: endpoints behind one front."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.core.errors import ContractBroken
from tidegate.core.telemetry.logs import get_logger
from tidegate.http.access import Access
from tidegate.http.authentication import Door
from tidegate.http.callers import caller_in
from tidegate.http.documentation import Documentation
from tidegate.http.endpoints import Endpoint
from tidegate.http.front import ENDPOINT, LONGEST_PATH, REQUEST_ID, Front
from tidegate.http.problems import ProblemType, Trouble
from tidegate.http.raw import RawHandler
from tidegate.http.settings import HttpSettings
from tidegate.http.tracing import answer_traced

log = get_logger(__name__)


def build_application(
    endpoints: Sequence[Endpoint],
    settings: HttpSettings,
    *,
    access: Access | None = None,
    absent: Mapping[str, str] | None = None,
) -> Starlette:
    """Every endpoint, and the pages that describe them; `absent` says why there is nothing under a prefix.

    `access` is what the endpoints of sessions use too, where there are some.
    """
    everything = [*endpoints, *Documentation(endpoints, needs_key=bool(settings.keys)).endpoints()]
    places: dict[str, dict[str, Endpoint]] = {}
    for endpoint in everything:
        methods = places.setdefault(endpoint.route, {})
        if endpoint.method in methods:
            raise ContractBroken(f"{endpoint.method} {endpoint.path} is there twice")
        methods[endpoint.method] = endpoint
    door = Door(access or Access(settings), _open_routes(places))
    application = Starlette(
        routes=[_route(route, methods, settings) for route, methods in places.items()],
        middleware=[Middleware(Front, door=door)],
        exception_handlers={HTTPException: partial(_refuse, absent or {})},
    )
    application.router.redirect_slashes = False
    return application


def mount_raw(application: ASGIApp, handlers: Mapping[str, RawHandler]) -> ASGIApp:
    """The application, with raw handlers mounted on prefixes of addresses beside it."""
    mounted = [(prefix, make(application)) for prefix, make in handlers.items()]

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        for prefix, handler in mounted:
            if path.startswith(prefix):
                await handler(scope, receive, send)
                return
        await application(scope, receive, send)

    return dispatch


def _open_routes(places: Mapping[str, Mapping[str, Endpoint]]) -> set[str]:
    """The addresses that need no key, whatever is done there: the door knows nothing of methods."""
    found = set[str]()
    for route, methods in places.items():
        if len({endpoint.is_open for endpoint in methods.values()}) != 1:
            raise ContractBroken(f"{route} needs a key for some of its methods only")
        if all(endpoint.is_open for endpoint in methods.values()):
            found.add(route)
    return found


def _route(route: str, methods: dict[str, Endpoint], settings: HttpSettings) -> Route:
    """An address without parameters is just this, whatever is done there, and not also one of those that have some."""
    place = _Place(methods, settings)
    return Route(route, place, methods=list(methods) if "{" in route else None)


class _Place:
    """One address, and what can be done there."""

    def __init__(self, methods: dict[str, Endpoint], settings: HttpSettings) -> None:
        self._methods, self._settings = methods, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._methods.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if endpoint is None:
            raise _not_here([*self._methods, *(["HEAD"] if "GET" in self._methods else [])])
        scope[ENDPOINT] = endpoint
        _authorise(endpoint, scope)
        response = await answer_traced(endpoint, Request(scope, receive), self._settings)
        await response(scope, receive, send)


def _authorise(endpoint: Endpoint, scope: Scope) -> None:
    """Whether whoever came may do this; what he is let do is written down, unless machines do it all the time."""
    if endpoint.needed is None:
        return
    caller = caller_in(scope)
    caller.require(endpoint.needed)
    if endpoint.method != "GET" and not endpoint.is_chatter:
        log.info(
            "http.acted",
            request_id=scope[REQUEST_ID],
            method=endpoint.method,
            path=scope["path"][:LONGEST_PATH],
            role=None if caller.role is None else caller.role.value,
            how=caller.how.value,
            key_id=caller.key_id,
        )


def _not_here(methods: Iterable[str]) -> Trouble:
    allowed = ", ".join(sorted(methods))
    return Trouble(ProblemType.METHOD_NOT_ALLOWED, f"only {allowed}", headers={"Allow": allowed})


async def _refuse(absent: Mapping[str, str], request: Request, error: Exception) -> Response:
    """What the router raises, in our words; the front answers."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        raise _not_here((error.headers or {}).get("Allow", "").split(", "))
    why = next((why for prefix, why in absent.items() if request.url.path.startswith(prefix)), None)
    raise Trouble(ProblemType.NOT_FOUND, why or "there is nothing at this address; /docs lists what there is")
