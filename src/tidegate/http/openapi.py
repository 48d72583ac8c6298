"""Builds the OpenAPI document from the declarations of the routes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_type_hints

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import License, Operation, Tag

from tidegate import __version__
from tidegate.http.callers import CSRF_HEADER
from tidegate.http.dispatch import NoInput
from tidegate.http.events import MEDIA_TYPE as EVENTS
from tidegate.http.problems import MEDIA_TYPE as PROBLEM
from tidegate.http.problems import Problem, ProblemType
from tidegate.http.routes import RouteDeclaration, declaration_of, to_handler
from tidegate.http.schemas import REFERENCE, meanings_of, parameter_schema, schemas_of
from tidegate.http.sessions import COOKIE, SECURE_COOKIE

_JSON = "application/json"
_OF_RUNS = ("progress", "ended")
_KEY, _SESSION = "apiKey", "session"
ROLE = "x-tidegate-role"
"""The extension field of an operation that names the role it needs."""
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
        "description": f"The cookie that `POST /v1/session` sets for a key; its name over TLS is `{SECURE_COOKIE}`. "
        f"Requests that change something also need the header `{CSRF_HEADER}`.",
    },
}
_WITH_BODY = (
    ProblemType.BAD_JSON,
    ProblemType.TOO_SLOW,
    ProblemType.TOO_LARGE,
    ProblemType.NOT_JSON,
)


def describe(routes: Sequence[HTTPRouteHandler], *, needs_key: bool) -> dict[str, Any]:
    """Build the document, version 3.1. `needs_key`: whether this server requires API keys.

    Litestar collects the operations; msgspec makes the schemas, with the constraints of the types.
    """
    declared = [found for found in map(declaration_of, routes) if found is not None and not found.is_page]
    types = [kind for route in declared for kind in _types_of(route)]
    schemas, components = schemas_of(list(dict.fromkeys([*types, Problem])))
    config = OpenAPIConfig(
        title="Tidegate",
        version=__version__,
        summary="Coordinates work around limits: collection, crawl, snapshots, waiting rooms, rankings and campaigns.",
        license=License("Apache-2.0", identifier="Apache-2.0"),
        tags=[Tag(tag) for tag in dict.fromkeys(route.tag for route in declared)],
        create_examples=False,
        path="/-",
    )
    described = [_described(route, schemas, needs_key=needs_key) for route in declared]
    document = Litestar(described, openapi_config=config, logging_config=None).openapi_schema.to_schema()
    # Litestar keeps methods and paths in sets, so their order would differ between processes.
    described_paths, document["paths"] = document["paths"], {}
    for route in declared:
        method = route.method.lower()
        document["paths"].setdefault(route.path, {})[method] = described_paths[route.path][method]
    document["components"] = {"schemas": components, "securitySchemes": _SCHEMES}
    return document


def _described(declared: RouteDeclaration, schemas: Mapping[Any, Any], *, needs_key: bool) -> HTTPRouteHandler:
    """A copy of the route's handler that returns our description of the operation."""

    class Described(Operation):
        def to_schema(self) -> dict[str, Any]:
            return _operation(declared, schemas, needs_key)

    return to_handler(declared, operation_class=Described)


def _types_of(route: RouteDeclaration) -> Iterable[Any]:
    contract = route.contract
    kinds = [contract.body, contract.answer, route.event, *(also.kind for also in route.also.values())]
    return [kind for kind in kinds if kind is not None and kind is not NoInput]


def _operation(route: RouteDeclaration, schemas: Mapping[Any, Any], needs_key: bool) -> dict[str, Any]:
    contract = route.contract
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "tags": [route.tag],
        "summary": route.summary,
        "security": _security(route) if needs_key else [],
        "responses": {**_good(route, schemas), **_bad(route, needs_key)},
    }
    if route.needed is not None:
        operation[ROLE] = route.needed.value
    if route.description:
        operation["description"] = route.description
    if parameters := [*_from_path(route), *_from_query(route), *_from_headers(route)]:
        operation["parameters"] = parameters
    if contract.body is not None and contract.body is not NoInput:
        content = {_JSON: {"schema": schemas[contract.body]}}
        operation["requestBody"] = {"required": contract.needs_body, "content": content}
    if route.largest_body is not None:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": {"type": "object"}}}}
    return operation


def _security(route: RouteDeclaration) -> list[dict[str, list[str]]]:
    """The accepted security schemes, with the role that is needed."""
    if route.needed is None:
        return []
    return [{_KEY: [route.needed.value]}, {_SESSION: [route.needed.value]}]


def _from_path(route: RouteDeclaration) -> Iterable[dict[str, Any]]:
    for name, kind in route.contract.path.items():
        yield {"name": name, "in": "path", "required": True, "schema": parameter_schema(kind)}


def _from_query(route: RouteDeclaration) -> Iterable[dict[str, Any]]:
    query = route.contract.query
    hints, meanings = get_type_hints(query, include_extras=True), meanings_of(query)
    for field in msgspec.structs.fields(query):
        schema = parameter_schema(hints[field.name])
        if field.default not in (None, (), msgspec.NODEFAULT):
            schema["default"] = field.default
        parameter = {"name": field.name, "in": "query", "required": field.required, "schema": schema}
        yield parameter | ({"description": meanings[field.name]} if field.name in meanings else {})


def _from_headers(route: RouteDeclaration) -> Iterable[dict[str, Any]]:
    for name, meaning in route.sent.items():
        yield {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": meaning}


def _good(route: RouteDeclaration, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the successful responses of a route, by status."""
    answer = route.contract.answer
    ours: Any = {"type": "object"} if answer is None else schemas[answer]
    run = {"$ref": REFERENCE.format(name="RunDetail")}
    event = _event(run, _OF_RUNS) if route.event is None else _event(schemas[route.event], (route.event_name,))
    by_media = {_JSON: ours, EVENTS: event}
    usual: dict[str, Any] = {
        "description": "Made." if route.status == 201 else "Done.",
        "content": {media: {"schema": by_media.get(media, {"type": "string"})} for media in route.media_types},
    }
    if route.headers:
        usual["headers"] = {
            name: {"description": meaning, "schema": {"type": "string"}} for name, meaning in route.headers.items()
        }
    good = {str(route.status): usual}
    for status, also in route.also.items():
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


def _bad(route: RouteDeclaration, needs_key: bool) -> dict[str, Any]:
    """The problems that a route like this can answer with, by status."""
    contract = route.contract
    kinds = [*_EVERYWHERE, *route.problems]
    kinds += _OF_KEYS if needs_key and not route.is_open else ()
    kinds += [ProblemType.NOT_FOUND] if contract.path else []
    kinds += _WITH_BODY if contract.body is not None else ()
    kinds += [ProblemType.CSRF_NEEDED] if needs_key and not route.is_open and route.method != "GET" else []
    by_status: dict[int, list[str]] = {}
    for kind in dict.fromkeys(kinds):
        by_status.setdefault(kind.value.status, []).append(f"{kind.value.title} (`{kind.slug}`).")
    problem = {PROBLEM: {"schema": {"$ref": REFERENCE.format(name=Problem.__name__)}}}
    return {
        str(status): {"description": " ".join(told), "content": problem} for status, told in sorted(by_status.items())
    }
