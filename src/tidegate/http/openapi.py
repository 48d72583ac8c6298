"""The OpenAPI document, made from the endpoints: what is not declared there is not in it, and the other way round."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_type_hints

import msgspec

from tidegate import __version__
from tidegate.http.callers import CSRF_HEADER
from tidegate.http.endpoints import Endpoint, Nothing
from tidegate.http.events import MEDIA_TYPE as EVENTS
from tidegate.http.problems import MEDIA_TYPE as PROBLEM
from tidegate.http.problems import Problem, ProblemType
from tidegate.http.schemas import REFERENCE, meanings_of, parameter_schema, schemas_of
from tidegate.http.sessions import COOKIE, SECURE_COOKIE

_JSON = "application/json"
_OF_RUNS = ("progress", "ended")
_KEY, _SESSION = "apiKey", "session"
ROLE = "x-tidegate-role"
"""Where an operation tells what a caller needs, also where everybody has it."""
_EVERYWHERE = (
    ProblemType.FOREIGN_HOST,
    ProblemType.FOREIGN_ORIGIN,
    ProblemType.ADDRESS_TOO_LONG,
    ProblemType.INVALID,
    ProblemType.HEAD_TOO_LARGE,
    ProblemType.FAILED,
    ProblemType.UNAVAILABLE,
)
_OF_KEYS = (ProblemType.KEY_NEEDED, ProblemType.ROLE_NEEDED, ProblemType.TOO_MANY_ATTEMPTS)
_SCHEMES = {
    _KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "A key of `http.api_key`, `http.api_keys` (role `operate`) or `http.read_keys` (role `read`).",
    },
    _SESSION: {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": f"What `POST /v1/session` gives a browser for a key; over TLS it is called `{SECURE_COOKIE}`. "
        f"What changes something needs the header `{CSRF_HEADER}` too.",
    },
}
_WITH_BODY = (
    ProblemType.BAD_JSON,
    ProblemType.TOO_SLOW,
    ProblemType.TOO_LARGE,
    ProblemType.NOT_JSON,
)


def describe(endpoints: Sequence[Endpoint], *, needs_key: bool) -> dict[str, Any]:
    """The document, version 3.1. `needs_key`: whether this server asks for one."""
    types = [kind for endpoint in endpoints for kind in _types_of(endpoint)]
    schemas, components = schemas_of(list(dict.fromkeys([*types, Problem])))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas, needs_key)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "version": __version__,
            "summary": "Collects from GitHub: runs, progress, statistics, credentials, quotas and dead letters.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(endpoint.tag for endpoint in endpoints)],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": _SCHEMES,
        },
    }


def _types_of(endpoint: Endpoint) -> Iterable[Any]:
    contract = endpoint.contract
    kinds = [contract.body, contract.answer, endpoint.event, *(also.kind for also in endpoint.also.values())]
    return [kind for kind in kinds if kind is not None and kind is not Nothing]


def _operation(endpoint: Endpoint, schemas: Mapping[Any, Any], needs_key: bool) -> dict[str, Any]:
    contract = endpoint.contract
    operation: dict[str, Any] = {
        "operationId": endpoint.operation,
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "security": _security(endpoint) if needs_key else [],
        "responses": {**_good(endpoint, schemas), **_bad(endpoint, needs_key)},
    }
    if endpoint.needed is not None:
        operation[ROLE] = endpoint.needed.value
    if endpoint.description:
        operation["description"] = endpoint.description
    if parameters := [*_from_path(endpoint), *_from_query(endpoint), *_from_headers(endpoint)]:
        operation["parameters"] = parameters
    if contract.body is not None and contract.body is not Nothing:
        content = {_JSON: {"schema": schemas[contract.body]}}
        operation["requestBody"] = {"required": contract.needs_body, "content": content}
    return operation


def _security(endpoint: Endpoint) -> list[dict[str, list[str]]]:
    """What a caller may show, either of them, and the role that it must have."""
    if endpoint.needed is None:
        return []
    return [{_KEY: [endpoint.needed.value]}, {_SESSION: [endpoint.needed.value]}]


def _from_path(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    for name, kind in endpoint.contract.path.items():
        yield {"name": name, "in": "path", "required": True, "schema": parameter_schema(kind)}


def _from_query(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    query = endpoint.contract.query
    hints, meanings = get_type_hints(query, include_extras=True), meanings_of(query)
    for field in msgspec.structs.fields(query):
        schema = parameter_schema(hints[field.name])
        if field.default not in (None, (), msgspec.NODEFAULT):
            schema["default"] = field.default
        parameter = {"name": field.name, "in": "query", "required": field.required, "schema": schema}
        yield parameter | ({"description": meanings[field.name]} if field.name in meanings else {})


def _from_headers(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    for name, meaning in endpoint.sent.items():
        yield {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": meaning}


def _good(endpoint: Endpoint, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    answer = endpoint.contract.answer
    ours: Any = {"type": "object"} if answer is None else schemas[answer]
    run = {"$ref": REFERENCE.format(name="RunDetail")}
    event = _event(run, _OF_RUNS) if endpoint.event is None else _event(schemas[endpoint.event], (endpoint.event_name,))
    by_media = {_JSON: ours, EVENTS: event}
    usual: dict[str, Any] = {
        "description": "Made." if endpoint.status == 201 else "Done.",
        "content": {media: {"schema": by_media.get(media, {"type": "string"})} for media in endpoint.media_types},
    }
    if endpoint.headers:
        usual["headers"] = {
            name: {"description": meaning, "schema": {"type": "string"}} for name, meaning in endpoint.headers.items()
        }
    good = {str(endpoint.status): usual}
    for status, also in endpoint.also.items():
        content = {} if also.kind is None else {"content": {_JSON: {"schema": schemas[also.kind]}}}
        good[str(status)] = {"description": also.meaning} | content
    return good


def _event(content: Any, names: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": "One server-sent event: its fields, of which `data` is a JSON text.",
        "properties": {
            "id": {"type": "string"},
            "event": {"enum": list(names)},
            "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": content},
        },
    }


def _bad(endpoint: Endpoint, needs_key: bool) -> dict[str, Any]:
    """The problems that an endpoint of this shape can have, by status."""
    contract = endpoint.contract
    kinds = [*_EVERYWHERE, *endpoint.problems]
    kinds += _OF_KEYS if needs_key and not endpoint.is_open else ()
    kinds += [ProblemType.NOT_FOUND] if contract.path else []
    kinds += _WITH_BODY if contract.body is not None else ()
    kinds += [ProblemType.CSRF_NEEDED] if needs_key and not endpoint.is_open and endpoint.method != "GET" else []
    by_status: dict[int, list[str]] = {}
    for kind in dict.fromkeys(kinds):
        by_status.setdefault(kind.value.status, []).append(f"{kind.value.title} (`{kind.slug}`).")
    problem = {PROBLEM: {"schema": {"$ref": REFERENCE.format(name=Problem.__name__)}}}
    return {
        str(status): {"description": " ".join(told), "content": problem} for status, told in sorted(by_status.items())
    }
