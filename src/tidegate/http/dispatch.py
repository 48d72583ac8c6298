"""From a request to its handler's arguments, and from the handler's result to the answer."""

import asyncio
import re
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tidegate.http.endpoints import Answer, Endpoint, Nothing, choices_of, is_list, query_types
from tidegate.http.problems import ProblemType, Trouble
from tidegate.http.settings import HttpSettings

S = TypeVar("S", bound=msgspec.Struct)

_AT = re.compile(r" - at `\$\.?([^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_NO_CHOICE = re.compile(r"Invalid enum value (.*)", re.DOTALL)
_LONGEST_NAME = 200
_JSON = re.compile(r'application/json\s*(;\s*charset="?utf-8"?\s*)?')
_FORM = "application/x-www-form-urlencoded"
_LARGEST_FORM, _MOST_FIELDS = 4096, 16
_OF_FORMS = (_FORM, "multipart/form-data", "text/plain")
"""What a page of any site can send without asking; so not even without a body."""
_BODY_WITHIN = timedelta(seconds=20)
_HEARD_OUT = 16
"""A body so many times too large is cut off. Others are read to their end, since who still sends hears no answer."""


async def answer(endpoint: Endpoint, request: Request, settings: HttpSettings) -> Response:
    """Ask the handler, within the time that an answer may take."""
    arguments = await _arguments(endpoint, request, settings)
    async with asyncio.timeout(settings.answer_within.total_seconds()):
        result = await endpoint.handler(**arguments)
    if isinstance(result, Response):
        return result
    if not isinstance(result, Answer):
        result = Answer(result)
    body = msgspec.json.encode(result.value)
    status = result.status or endpoint.status
    return Response(body, status_code=status, headers=dict(result.headers), media_type="application/json")


async def _arguments(endpoint: Endpoint, request: Request, settings: HttpSettings) -> dict[str, Any]:
    contract = endpoint.contract
    arguments = {name: _from_path(request, name, kind) for name, kind in contract.path.items()}
    query = _query(request, contract.query)
    if contract.query is not Nothing:
        arguments["query"] = query
    if contract.body is not None:
        if endpoint.is_page:
            body = await _form(request, contract.body)
        else:
            body = await _body(request, contract.body, settings.largest_body, needed=contract.needs_body)
        if contract.body is not Nothing:
            arguments["body"] = body
    if contract.wants_request:
        arguments["request"] = request
    return arguments


def _from_path(request: Request, name: str, kind: Any) -> Any:
    """A part of the address; one that cannot be an id leads nowhere."""
    try:
        return msgspec.convert(request.path_params[name], kind, strict=False)
    except msgspec.ValidationError:
        what = name.removesuffix("_id").replace("_", " ")
        raise Trouble(
            ProblemType.NOT_FOUND, f"there is no {what} {request.path_params[name][:80]!r}", field=name
        ) from None


def _query(request: Request, kind: type[S]) -> S:
    return _from_pairs(request.query_params, kind, "parameter")


def _from_pairs(pairs: ImmutableMultiDict[str, str], kind: type[S], what: str) -> S:
    types, given = query_types(kind), dict[str, Any]()
    for name in pairs:
        values = pairs.getlist(name)
        if name in types and is_list(types[name]):
            given[name] = values
        elif len(values) != 1 and name in types:
            raise Trouble(ProblemType.INVALID, f"{name[:80]} is given {len(values)} times", field=name[:80])
        elif values[0].lower() == "null" and name in types and types[name] is not str:
            # Which the decoder would take for nothing at all.
            raise Trouble(ProblemType.INVALID, f"{name}: it cannot be null; leave it out", field=name)
        else:
            given[name] = values[0]
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(error, what, kind) from None


async def _form(request: Request, kind: type[S]) -> S:
    """What a form of our own page sends. Any page can send one like it, but the door has seen that ours did."""
    media = request.headers.get("content-type", "").lower()
    if media.partition(";")[0].strip() != _FORM:
        raise Trouble(ProblemType.NOT_A_FORM, f"the content type is {media[:80]!r}" if media else "there is none")
    raw = await _read(request, _LARGEST_FORM)
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, strict_parsing=bool(raw), max_num_fields=_MOST_FIELDS)
    except (UnicodeDecodeError, ValueError):
        raise Trouble(ProblemType.INVALID, "the body is no form") from None
    return _from_pairs(ImmutableMultiDict(pairs), kind, "field")


async def _body(request: Request, kind: type[S], largest: int, *, needed: bool) -> S:
    media = request.headers.get("content-type", "").lower()
    if media.partition(";")[0].strip() in _OF_FORMS:
        raise Trouble(ProblemType.NOT_JSON, f"the content type is {media[:80]!r}")
    raw = await _read(request, largest)
    if not raw.strip() and not needed:
        return kind()
    if not _JSON.fullmatch(media):
        raise Trouble(
            ProblemType.NOT_JSON, f"the content type is {media[:80]!r}" if media else "there is no content type"
        )
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise _invalid(error, "field", kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Trouble(ProblemType.BAD_JSON, f"the body is no JSON: {error}") from None
    except RecursionError:
        raise Trouble(ProblemType.INVALID, "the body is nested too deeply") from None


async def _read(request: Request, largest: int) -> bytes:
    """The whole body; one that is too large is heard out, within reason, but not kept."""
    told = request.headers.get("content-length", "0")
    fits, seen = not told.isdigit() or int(told) <= largest, 0
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_WITHIN.total_seconds()):
            async for chunk in request.stream():
                seen += len(chunk)
                fits = fits and seen <= largest
                if fits:
                    body += chunk
                elif seen > _HEARD_OUT * largest:
                    break
    except TimeoutError:
        raise Trouble(ProblemType.TOO_SLOW, f"it was not there within {_BODY_WITHIN.total_seconds():.0f} s") from None
    except ClientDisconnect:
        raise Trouble(ProblemType.TOO_SLOW, "the connection ended before the body did") from None
    if not fits:
        # Should there be more of it on the wire, nothing can be asked over this connection any more.
        raise Trouble(ProblemType.TOO_LARGE, f"it may have {largest:,} bytes at most", headers={"Connection": "close"})
    return bytes(body)


def _invalid(error: msgspec.ValidationError, what: str, kind: type[msgspec.Struct]) -> Trouble:
    """Which value, and why, as far as the decoder's message tells."""
    text = str(error)
    found, reason = _AT.search(text), _AT.sub("", text)
    path = [found[1]] if found else []
    if unknown := _UNKNOWN.fullmatch(reason):
        path, reason = [*path, unknown[1]], f"there is no such {what}"
    elif missing := _MISSING.fullmatch(reason):
        path, reason = [*path, missing[1]], "it is missing"
    elif choice := _NO_CHOICE.fullmatch(reason):
        known = choices_of(kind, re.split(r"[.\[]", found[1])[0]) if found else []
        reason = f"{choice[1]} is none of {', '.join(known)}" if known else reason
    field = ".".join(path)[:_LONGEST_NAME]
    return Trouble(ProblemType.INVALID, f"{field}: {reason}" if field else reason, field=field or None)
