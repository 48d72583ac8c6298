"""Decodes a request to the arguments of its handler, and converts the result to the answer.

Values are decoded by msgspec directly: Litestar would convert values of a body (`"5"` to 5), and ignores constraints in
types, such as `Annotated[int, Meta(ge=1)]`.
"""

import asyncio
import re
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, unquote

import msgspec
from litestar import Response

from tidegate.core.telemetry import traces
from tidegate.http.asgi import HttpRequest, HttpResponse
from tidegate.http.callers import caller_of
from tidegate.http.problems import ProblemType, RequestFailed, to_request_failed

if TYPE_CHECKING:
    from tidegate.http.routes import RouteDeclaration

S = TypeVar("S", bound=msgspec.Struct)
Pairs = list[tuple[str, str]]

ANSWER_WITHIN = "tidegate.answer_within_s"
"""The key of the time limit of an answer in the scope of a request."""
_TRACE = "traceparent"
"""The W3C header with the caller's trace."""
_AT = re.compile(r" - at `\$\.?([^`]*)`$")
_NUMBER = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_NO_CHOICE = re.compile(r"Invalid enum value (.*)", re.DOTALL)
_LONGEST_NAME = 200
_JSON = re.compile(r'application/json\s*(;\s*charset="?utf-8"?\s*)?')
_FORM = "application/x-www-form-urlencoded"
_LARGEST_FORM, _MOST_FIELDS = 4096, 16
_OF_FORMS = (_FORM, "multipart/form-data", "text/plain")
"""Content types that a page of any site can send without a preflight request; refused even without a body."""
_BODY_WITHIN = timedelta(seconds=20)


class RequestInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of request bodies and queries. Unknown fields are refused."""


class NoInput(RequestInput, frozen=True, kw_only=True):
    """For routes that take no body, or no parameters."""


async def answer_traced(route: "RouteDeclaration", request: HttpRequest) -> HttpResponse:
    """Answer a request; record a span for every method but GET, in the caller's trace or in a new one.

    The trace of an anonymous caller is ignored. Problems that the caller caused do not fail the span.
    """
    tracer = traces.tracer()
    if tracer is None or route.method == "GET":
        return await answer(route, request)
    # Otherwise any client could attach spans to traces of others.
    parent = None if caller_of(request).role is None else request.headers.get(_TRACE)
    facts = {"http.request.method": route.method, "http.route": route.path}
    span = tracer.begin(f"{route.method} {route.path}", facts, parent=parent, kind="server")
    try:
        with span.current():
            response = await answer(route, request)
        span.note({"http.response.status_code": response.status_code or route.status})
        return response
    except Exception as error:
        failure = to_request_failed(error)
        span.note({"http.response.status_code": 500 if failure is None else failure.status})
        if failure is None or failure.status >= 500:
            span.fail(f"{type(error).__name__}: {error}")
        raise
    finally:
        span.end()


async def answer(route: "RouteDeclaration", request: HttpRequest) -> HttpResponse:
    """Call the handler, within the time limit of an answer."""
    arguments = await _arguments(route, request)
    # Around the handler only: reading the body has its own limit, and streams are sent after the handler.
    async with asyncio.timeout(request.scope.get(ANSWER_WITHIN)):
        result = await route.handler(**arguments)
    return result if isinstance(result, Response) else Response(result)


async def _arguments(route: "RouteDeclaration", request: HttpRequest) -> dict[str, Any]:
    contract = route.contract
    given = request.path_params
    arguments = {
        name: _from_path(unquote(given[name]) if name in route.quoted else given[name], name, kind)
        for name, kind in contract.path.items()
    }
    query = read_pairs(_query_of(request), contract.query, "parameter")
    if contract.query is not NoInput:
        arguments["query"] = query
    if contract.body is not None:
        read = _form if route.is_page else _body
        body = await read(request, contract.body, needed=contract.needs_body)
        if contract.body is not NoInput:
            arguments["body"] = body
    if contract.wants_request:
        arguments["request"] = request
    return arguments


def _from_path(text: str, name: str, kind: Any) -> Any:
    """Decode a path parameter. Raises `RequestFailed` (404) if it is not a valid id."""
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        what = name.removesuffix("_id").replace("_", " ")
        raise RequestFailed(ProblemType.NOT_FOUND, f"there is no {what} {text[:80]!r}", field=name) from None


def _query_of(request: HttpRequest) -> Pairs:
    return parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)


def read_pairs(pairs: Pairs, kind: type[S], what: str) -> S:
    """The values of a query or a form as a struct. Raises `RequestFailed` for unknown or invalid values."""
    types, given, found = _query_types(kind), dict[str, Any](), dict[str, list[str]]()
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    for name, values in found.items():
        if name in types and is_list(types[name]):
            given[name] = values
        # A repeated parameter is ambiguous.
        elif len(values) != 1 and name in types:
            raise RequestFailed(ProblemType.INVALID, f"{name[:80]} is given {len(values)} times", field=name[:80])
        elif values[0].lower() == "null" and name in types and types[name] is not str:
            # The decoder would treat "null" as an absent value.
            raise RequestFailed(ProblemType.INVALID, f"{name}: null is not allowed; omit the {what}", field=name)
        elif types.get(name) is datetime and _NUMBER.fullmatch(values[0]):
            # The decoder would take a number for seconds since 1970, which no document mentions.
            raise RequestFailed(
                ProblemType.INVALID, f"{name}: must be a date and time (ISO 8601), not a number", field=name
            )
        else:
            given[name] = values[0]
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(error, what, kind) from None


async def _form(request: HttpRequest, kind: type[S], *, needed: bool) -> S:
    """Decode a form of a page of this server. Admission has checked that no other page sent it."""
    del needed
    media = request.headers.get("content-type", "").lower()
    if media.partition(";")[0].strip() != _FORM:
        raise RequestFailed(
            ProblemType.NOT_A_FORM, f"the content type is {media[:80]!r}" if media else "there is no content type"
        )
    raw = await read_body(request)
    if len(raw) > _LARGEST_FORM:
        raise RequestFailed(ProblemType.TOO_LARGE, f"the limit is {_LARGEST_FORM:,} bytes")
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, strict_parsing=bool(raw), max_num_fields=_MOST_FIELDS)
    except (UnicodeDecodeError, ValueError):
        raise RequestFailed(ProblemType.INVALID, "the body is not a form") from None
    return read_pairs(pairs, kind, "field")


async def _body(request: HttpRequest, kind: type[S], *, needed: bool) -> S:
    media = request.headers.get("content-type", "").lower()
    # Before the body is read: these types are refused even without a body, since any page can send them.
    if media.partition(";")[0].strip() in _OF_FORMS:
        raise RequestFailed(ProblemType.NOT_JSON, f"the content type is {media[:80]!r}")
    raw = await read_body(request)
    if not raw.strip() and not needed:
        return kind()
    if not _JSON.fullmatch(media):
        raise RequestFailed(
            ProblemType.NOT_JSON, f"the content type is {media[:80]!r}" if media else "there is no content type"
        )
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise _invalid(error, "field", kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestFailed(ProblemType.BAD_JSON, f"the body is not JSON: {error}") from None
    # The decoder is recursive; deep nesting must not end the request with a 500.
    except RecursionError:
        raise RequestFailed(ProblemType.INVALID, "the body is nested too deeply") from None


async def read_body(request: HttpRequest) -> bytes:
    """Receive the whole body, within a time limit; Litestar limits its size."""
    try:
        async with asyncio.timeout(_BODY_WITHIN.total_seconds()):
            return await request.body()
    except TimeoutError:
        raise RequestFailed(
            ProblemType.TOO_SLOW, f"it did not arrive within {_BODY_WITHIN.total_seconds():.0f} s"
        ) from None


def _invalid(error: msgspec.ValidationError, what: str, kind: type[msgspec.Struct]) -> RequestFailed:
    """Convert an error of the decoder to a problem that names the field and the reason."""
    text = str(error)
    found, reason = _AT.search(text), _AT.sub("", text)
    path = [found[1]] if found else []
    if unknown := _UNKNOWN.fullmatch(reason):
        path, reason = [*path, unknown[1]], f"unknown {what}"
    elif missing := _MISSING.fullmatch(reason):
        path, reason = [*path, missing[1]], "required, but missing"
    elif choice := _NO_CHOICE.fullmatch(reason):
        known = _choices_of(kind, re.split(r"[.\[]", found[1])[0]) if found else []
        reason = f"{choice[1]} is not one of {', '.join(known)}" if known else reason
    field = ".".join(path)[:_LONGEST_NAME]
    return RequestFailed(ProblemType.INVALID, f"{field}: {reason}" if field else reason, field=field or None)


def is_list(annotation: Any) -> bool:
    """Whether a query parameter may be given several times."""
    return get_origin(annotation) in (list, tuple, set, frozenset)


def _query_types(query: type[msgspec.Struct]) -> dict[str, Any]:
    """The type of each parameter, without its constraints."""
    return {name: _plain(hint) for name, hint in get_type_hints(query).items()}


def _choices_of(given: type[msgspec.Struct], name: str) -> list[str]:
    """The allowed values of a field or parameter that is an enumeration."""
    return _choices(get_type_hints(given).get(name))


def _choices(hint: Any) -> list[str]:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [str(each.value) for each in hint]
    if get_origin(hint) is Literal:
        return [str(each) for each in get_args(hint)]
    return [choice for each in get_args(hint) for choice in _choices(each)]


def _plain(hint: Any) -> Any:
    """`X` for `X | None`; any other annotation as it is."""
    options = [each for each in get_args(hint) if each is not type(None)]
    return options[0] if type(None) in get_args(hint) and len(options) == 1 else hint
