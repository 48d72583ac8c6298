"""Routes: a method, an address and a function, whose signature is the contract.

    async def list_runs(self, query: RunFilter) -> RunPage: ...
    route("GET", "/v1/runs", runs.list_runs, "runs")

Parameters that the address names come from there; `query` and `body` are structs that say what may be given; the result
is a struct, or a Litestar `Response` around one. The same types decode requests, encode answers and describe the route
in the OpenAPI document. `route` makes a handler of Litestar, which does the routing.
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
"""Where the options of a handler have the declaration of its route."""
_PLACEHOLDER = re.compile(r"{(\w+)(?::path)?}")
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_WITH_BODY = ("POST", "PUT", "PATCH")


def given(name: str) -> dict[str, Any]:
    """For the `NARROWER` of a struct, which is added to its schema: this field must be given."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def one_of(*names: str) -> dict[str, Any]:
    """Likewise: exactly one of these fields must be given."""
    return {"oneOf": [given(name) for name in names]}


@dataclass(frozen=True)
class FurtherAnswer:
    """Another good answer."""

    meaning: str
    kind: Any = None
    """The type of its body; None where there is none."""


@dataclass(frozen=True)
class HandlerSignature:
    """What a handler's signature says."""

    path: Mapping[str, Any]
    query: type[msgspec.Struct]
    body: type[msgspec.Struct] | None
    needs_body: bool
    wants_request: bool
    answer: Any
    """The type of the result; None where the handler makes its own response."""


@dataclass(frozen=True)
class RouteDeclaration:
    """What a route does, needs and answers."""

    method: str
    route: str
    """Its address; `{name}` is a parameter, `{name:path}` one that may contain a slash."""
    handler: Callable[..., Awaitable[Any]]
    tag: str
    status: int = 200
    also: Mapping[int, FurtherAnswer] = field(default_factory=dict[int, FurtherAnswer])
    """Other good statuses, and what they mean."""
    problems: tuple[ProblemType, ...] = ()
    """Beside those that every endpoint of its shape has."""
    media_types: tuple[str, ...] = ("application/json",)
    """Of the answer; the first is the usual one."""
    is_open: bool = False
    """Answered without a key."""
    role: Role | None = None
    """What a caller needs who does this; by itself `read` for a GET, and `operate` for everything else."""
    is_chatter: bool = False
    """Asked every few seconds by machines: not worth a line in the log."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers that the usual answer has beside those of every answer, and what they mean."""
    sent: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers that callers may send, and what they mean."""
    is_page: bool = False
    """For people and their browsers: its body is a form, and no document for machines describes it."""
    largest_body: int | None = None
    """The handler reads the body itself, with `read_body`, and it has so many bytes at most. None: the body is decoded
    as the signature says, and the setting `http.largest_body` counts."""
    event: Any = None
    """What the events of its stream hold, where that is not a run."""
    event_name: str = "place"
    """And what they are called."""

    def __post_init__(self) -> None:
        if self.method not in _METHODS:
            raise ContractBroken(f"{self.method} {self.path}: the method is none of {', '.join(_METHODS)}")
        if not inspect.getdoc(self.handler):
            raise ContractBroken(f"{self.method} {self.path}: its handler says nothing about itself")
        if self.is_open and self.role is not None:
            raise ContractBroken(f"{self.method} {self.path}: it is open, and needs a role")
        _ = self.contract

    @cached_property
    def quoted(self) -> frozenset[str]:
        """Parameters that may contain a slash."""
        return frozenset(re.findall(r"{(\w+):path}", self.route))

    @property
    def needed(self) -> Role | None:
        """The role that a caller needs; None where everybody may."""
        if self.is_open:
            return None
        return self.role or (Role.READ if self.method == "GET" else Role.OPERATE)

    @property
    def path(self) -> str:
        """Its address as it is written in documents."""
        return self.route.replace(":path}", "}")

    @property
    def summary(self) -> str:
        """The first line of what the handler says about itself."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[0]

    @property
    def description(self) -> str:
        """The rest of it."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[2].strip()

    @property
    def operation(self) -> str:
        """A name for the OpenAPI document."""
        return self.handler.__name__

    @cached_property
    def contract(self) -> HandlerSignature:
        """What the handler's signature says; raise `ContractBroken` where it does not fit the address."""
        hints = get_type_hints(self.handler, include_extras=True)
        parameters = inspect.signature(self.handler).parameters
        names = _PLACEHOLDER.findall(self.route)
        strange = set(parameters) ^ (set(names) | ({"query", "body", "request"} & set(parameters)))
        if strange:
            raise ContractBroken(f"{self.method} {self.path}: {', '.join(sorted(strange))} has no place or no taker")
        has_body = self.method in _WITH_BODY and self.largest_body is None
        if "body" in parameters and not has_body:
            raise ContractBroken(f"{self.method} {self.path}: a {self.method} has no body")
        return HandlerSignature(
            path={name: hints[name] for name in names},
            query=hints.get("query", NoInput),
            body=hints.get("body", NoInput) if has_body else None,
            needs_body="body" in parameters and parameters["body"].default is inspect.Parameter.empty,
            wants_request="request" in parameters,
            answer=_answer_of(hints.get("return")),
        )


def route(method: str, path: str, handler: Callable[..., Awaitable[Any]], tag: str, **options: Any) -> HTTPRouteHandler:
    """Declare a route; `options` are fields of `RouteDeclaration`. Raises `ContractBroken` if it fits nothing."""
    return to_handler(RouteDeclaration(method, path, handler, tag, **options))


def to_handler(declared: RouteDeclaration, *, operation_class: type[Operation] = Operation) -> HTTPRouteHandler:
    """The route, as a handler of Litestar. A parameter that may contain a slash arrives quoted (`application`)."""

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
    """The struct that usually comes back; None for a response of the handler's own making."""
    if get_origin(hint) in (Union, UnionType):
        return _answer_of(get_args(hint)[0])
    if get_origin(hint) is Response:
        kind = get_args(hint)[0]
        return None if kind in (Any, bytes) else kind
    if isinstance(hint, type) and issubclass(hint, Response):
        return None
    return hint
