"""An endpoint is a method, an address and a function; what the function's signature says is the contract.

    async def list_runs(self, query: RunFilter) -> RunPage: ...
    Endpoint("GET", "/v1/runs", runs.list_runs)

Parameters named in the address come from there; `query` and `body` are structs that say what may be given; the result
is a struct, or an `Answer` around one. The same types decode requests, encode answers and make the OpenAPI document, so
that none of the three can say what the others do not.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import UnionType
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from starlette.responses import Response

from tidegate.core.errors import ContractBroken
from tidegate.http.callers import Role
from tidegate.http.problems import ProblemType

T = TypeVar("T")

_PLACEHOLDER = re.compile(r"{(\w+)(?::path)?}")
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_WITH_BODY = ("POST", "PUT", "PATCH")


class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The root of what callers send: what is not declared is refused by its name."""


class Nothing(Given, frozen=True, kw_only=True):
    """For endpoints that take no body, or no parameters."""


def given(name: str) -> dict[str, Any]:
    """For the `NARROWER` of a struct, which is added to its schema: this field must be given."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def one_of(*names: str) -> dict[str, Any]:
    """Likewise: exactly one of these fields must be given."""
    return {"oneOf": [given(name) for name in names]}


@dataclass(frozen=True)
class Answer(Generic[T]):
    """A result that comes with headers, or with another status than usual."""

    value: T
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    status: int | None = None


@dataclass(frozen=True)
class Also:
    """Another good answer."""

    meaning: str
    kind: Any = None
    """The type of its body; None where there is none."""


@dataclass(frozen=True)
class Contract:
    """What a handler's signature says."""

    path: Mapping[str, Any]
    query: type[msgspec.Struct]
    body: type[msgspec.Struct] | None
    needs_body: bool
    wants_request: bool
    answer: Any
    """The type of the result; None where the handler makes its own response."""


@dataclass(frozen=True)
class Endpoint:
    """One thing that callers can do."""

    method: str
    route: str
    """Its address; `{name}` is a parameter, `{name:path}` one that may contain a slash."""
    handler: Callable[..., Awaitable[Any]]
    tag: str
    status: int = 200
    also: Mapping[int, Also] = field(default_factory=dict[int, Also])
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
    def contract(self) -> Contract:
        """What the handler's signature says; raise `ContractBroken` where it does not fit the address."""
        hints = get_type_hints(self.handler, include_extras=True)
        parameters = inspect.signature(self.handler).parameters
        names = _PLACEHOLDER.findall(self.route)
        strange = set(parameters) ^ (set(names) | ({"query", "body", "request"} & set(parameters)))
        if strange:
            raise ContractBroken(f"{self.method} {self.path}: {', '.join(sorted(strange))} has no place or no taker")
        has_body = self.method in _WITH_BODY
        if "body" in parameters and not has_body:
            raise ContractBroken(f"{self.method} {self.path}: a {self.method} has no body")
        return Contract(
            path={name: hints[name] for name in names},
            query=hints.get("query", Nothing),
            body=hints.get("body", Nothing) if has_body else None,
            needs_body="body" in parameters and parameters["body"].default is inspect.Parameter.empty,
            wants_request="request" in parameters,
            answer=_answer_of(hints.get("return")),
        )


def _answer_of(hint: Any) -> Any:
    """The struct that usually comes back; None for a response of the handler's own making."""
    if get_origin(hint) in (Union, UnionType):
        return _answer_of(get_args(hint)[0])
    if get_origin(hint) is Answer:
        return get_args(hint)[0]
    if isinstance(hint, type) and issubclass(hint, Response):
        return None
    return hint


def is_list(annotation: Any) -> bool:
    """Whether a query parameter may be given several times."""
    return get_origin(annotation) in (list, tuple, set, frozenset)


def query_types(query: type[msgspec.Struct]) -> dict[str, Any]:
    """The type of each parameter, without what narrows it."""
    return {name: _plain(hint) for name, hint in get_type_hints(query).items()}


def choices_of(given: type[msgspec.Struct], name: str) -> list[str]:
    """What a field or parameter can be, where that is one of a few."""
    return _choices(get_type_hints(given).get(name))


def _choices(hint: Any) -> list[str]:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [str(each.value) for each in hint]
    if get_origin(hint) is Literal:
        return [str(each) for each in get_args(hint)]
    return [choice for each in get_args(hint) for choice in _choices(each)]


def _plain(hint: Any) -> Any:
    """`X` of `X | None`."""
    options = [each for each in get_args(hint) if each is not type(None)]
    return options[0] if type(None) in get_args(hint) and len(options) == 1 else hint
