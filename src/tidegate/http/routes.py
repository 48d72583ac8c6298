"""Routes: a method, a path and a function; its signature is the contract.

    async def list_runs(self, query: RunFilter) -> RunPage: ...
    route("GET", "/v1/runs", runs.list_runs, "runs")

Path parameters are arguments of the same name; `query` and `body` are structs of the accepted values; the result is a
struct or a Litestar `Response` with one. The same types decode requests, encode answers and describe the route in the
OpenAPI document. `route` makes a handler for Litestar, which does the routing.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from litestar import Response
from litestar.enums import HttpMethod
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Operation
from litestar.types import Empty

from tidegate.core.errors import ContractBroken
from tidegate.http.asgi import HttpRequest, HttpResponse
from tidegate.http.callers import Role
from tidegate.http.dispatch import NoInput, answer_traced
from tidegate.http.problems import ProblemType

ROUTE = "tidegate.route"
"""The key of the route's declaration in the options of a handler."""
_PLACEHOLDER = re.compile(r"{(\w+)(?::path)?}")
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_WITH_BODY = ("POST", "PUT", "PATCH")


def given(name: str) -> dict[str, Any]:
    """Schema rule for the `NARROWER` of a struct: this field is required."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def one_of(*names: str) -> dict[str, Any]:
    """Schema rule for the `NARROWER` of a struct: exactly one of these fields is required."""
    return {"oneOf": [given(name) for name in names]}


@dataclass(frozen=True)
class FurtherAnswer:
    """A further successful answer of a route."""

    meaning: str
    kind: Any = None
    """The type of the body; None if there is none."""


@dataclass(frozen=True)
class HandlerSignature:
    """The types of a handler's parameters and result."""

    path: Mapping[str, Any]
    query: type[msgspec.Struct]
    body: type[msgspec.Struct] | None
    needs_body: bool
    wants_request: bool
    answer: Any
    """The type of the result; None if the handler builds its own response."""


@dataclass(frozen=True)
class RouteDeclaration:
    """Everything about a route: method, path, handler, role, answers and problems."""

    method: str
    route: str
    """The path; `{name}` is a parameter, `{name:path}` a parameter that may contain slashes."""
    handler: Callable[..., Awaitable[Any]]
    tag: str
    status: int = 200
    also: Mapping[int, FurtherAnswer] = field(default_factory=dict[int, FurtherAnswer])
    """Further successful statuses and their meanings."""
    problems: tuple[ProblemType, ...] = ()
    """Problems in addition to those of every route like this."""
    media_types: tuple[str, ...] = ("application/json",)
    """Media types of the answer, the default first."""
    is_open: bool = False
    """Whether the route is answered without a key."""
    role: Role | None = None
    """The role that a caller needs; by default `read` for GET and `operate` for other methods."""
    is_high_volume: bool = False
    """Whether machines poll the route every few seconds; such requests are logged at level debug."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of the default answer, in addition to those of every answer, and their meanings."""
    sent: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers that callers may send, and their meanings."""
    is_page: bool = False
    """Whether it is a page for browsers: its body is a form, and the OpenAPI document omits it."""
    largest_body: int | None = None
    """Limit in bytes of a body that the handler reads itself with `read_body`. None: the body is decoded according to
    the signature, and the setting `http.largest_body` applies."""
    event: Any = None
    """The type of the stream's events, if it is not a run."""
    event_name: str = "place"
    """The name of the stream's events."""

    def __post_init__(self) -> None:
        if self.method not in _METHODS:
            raise ContractBroken(f"{self.method} {self.path}: the method is none of {', '.join(_METHODS)}")
        if not inspect.getdoc(self.handler):
            raise ContractBroken(f"{self.method} {self.path}: its handler has no docstring")
        if self.is_open and self.role is not None:
            raise ContractBroken(f"{self.method} {self.path}: it is open and has a role")
        _ = self.contract

    @cached_property
    def quoted(self) -> frozenset[str]:
        """Parameters that may contain a slash."""
        return frozenset(re.findall(r"{(\w+):path}", self.route))

    @property
    def needed(self) -> Role | None:
        """The role that a caller needs; None for an open route."""
        if self.is_open:
            return None
        return self.role or (Role.READ if self.method == "GET" else Role.OPERATE)

    @property
    def path(self) -> str:
        """The path as it is written in documents."""
        return self.route.replace(":path}", "}")

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[0]

    @property
    def description(self) -> str:
        """The handler's docstring without its first line."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[2].strip()

    @property
    def operation(self) -> str:
        """The operation id in the OpenAPI document."""
        return self.handler.__name__

    @cached_property
    def contract(self) -> HandlerSignature:
        """The contract of the handler. Raises `ContractBroken` if its signature does not match the path."""
        hints = get_type_hints(self.handler, include_extras=True)
        parameters = inspect.signature(self.handler).parameters
        names = _PLACEHOLDER.findall(self.route)
        unexpected = set(parameters) ^ (set(names) | ({"query", "body", "request"} & set(parameters)))
        if unexpected:
            names_of = ", ".join(sorted(unexpected))
            raise ContractBroken(f"{self.method} {self.path}: only the path or only the handler has {names_of}")
        has_body = self.method in _WITH_BODY and self.largest_body is None
        if "body" in parameters and not has_body:
            raise ContractBroken(f"{self.method} {self.path}: a {self.method} request has no body")
        return HandlerSignature(
            path={name: hints[name] for name in names},
            query=hints.get("query", NoInput),
            body=hints.get("body", NoInput) if has_body else None,
            needs_body="body" in parameters and parameters["body"].default is inspect.Parameter.empty,
            wants_request="request" in parameters,
            answer=_answer_of(hints.get("return")),
        )


def route(method: str, path: str, handler: Callable[..., Awaitable[Any]], tag: str, **options: Any) -> HTTPRouteHandler:
    """Declare a route; `options` are fields of `RouteDeclaration`. Raises `ContractBroken` if it is inconsistent."""
    return to_handler(RouteDeclaration(method, path, handler, tag, **options))


def to_handler(declared: RouteDeclaration, *, operation_class: type[Operation] = Operation) -> HTTPRouteHandler:
    """The route as a handler of Litestar. `application` quotes parameters that may contain slashes."""

    async def call(request: HttpRequest) -> HttpResponse:
        return await answer_traced(declared, request)

    call.__name__ = declared.operation
    path = _PLACEHOLDER.sub(r"{\1:str}", declared.route)
    return HTTPRouteHandler(
        path,
        http_method=HttpMethod(declared.method),
        status_code=declared.status,
        operation_id=declared.operation,
        operation_class=operation_class,
        opt={ROUTE: declared},
        request_max_body_size=Empty if declared.largest_body is None else declared.largest_body,
    )(call)


def declaration_of(handler: HTTPRouteHandler) -> RouteDeclaration | None:
    """The declaration of a handler that `route` made."""
    found = handler.opt.get(ROUTE)
    return found if isinstance(found, RouteDeclaration) else None


def _answer_of(hint: Any) -> Any:
    """The struct of the default answer; None if the handler builds its own response."""
    if get_origin(hint) in (Union, UnionType):
        return _answer_of(get_args(hint)[0])
    if get_origin(hint) is Response:
        kind = get_args(hint)[0]
        return None if kind in (Any, bytes) else kind
    if isinstance(hint, type) and issubclass(hint, Response):
        return None
    return hint
