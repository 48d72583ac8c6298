"""`/openapi.json` for programs, and `/docs` for people: Swagger UI, served without files of other hosts.

The document is built from the declarations of the routes. Schemas are those of the structs; the docstring under a field
becomes its description.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
from litestar import Litestar, Response
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import License, Operation, Tag

from tidegate import __version__
from tidegate.core.docstrings import field_docstrings
from tidegate.http.callers import CSRF_HEADER
from tidegate.http.dispatch import NoInput
from tidegate.http.events import MEDIA_TYPE as EVENTS
from tidegate.http.problems import MEDIA_TYPE as PROBLEM
from tidegate.http.problems import Problem, ProblemType, RequestFailed
from tidegate.http.routes import RouteDeclaration, declaration_of, route, to_handler
from tidegate.http.sessions import COOKIE, SECURE_COOKIE

REFERENCE = "#/components/schemas/{name}"


def schemas_of(types: Sequence[Any]) -> tuple[Mapping[Any, Any], dict[str, Any]]:
    """The schema of each type, and the referenced components by name."""
    described, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    for struct in _structs_in(types):
        component, meanings = components.get(struct.__name__, {}), meanings_of(struct)
        properties: dict[str, Any] = component.get("properties", {})
        for field in msgspec.structs.fields(struct):
            if datetime in (field.type, *get_args(field.type)):
                _note_moment(properties.get(field.encode_name, {}))
            if field.name in meanings and field.encode_name in properties:
                properties[field.encode_name] = {"description": meanings[field.name], **properties[field.encode_name]}
        component |= getattr(struct, "NARROWER", {})
    return dict(zip(types, described, strict=True)), components


def parameter_schema(annotation: Any) -> dict[str, Any]:
    """The schema of a path or query parameter: without references, and never null, since it can be omitted."""
    schema = msgspec.json.schema(annotation)
    whole = _inlined(schema, schema.get("$defs", {}))
    options = [each for each in whole.get("anyOf", []) if each != {"type": "null"}]
    return options[0] if len(options) == 1 else whole


def meanings_of(struct: type[Any]) -> dict[str, str]:
    """The docstrings under the fields of a struct and of its base classes, in the words of JSON."""
    return {name: re.sub(r"\bNone\b", "null", text) for name, text in field_docstrings(struct).items()}


def _note_moment(schema: dict[str, Any]) -> None:
    """Add the format `date-time`, which msgspec omits for times without constraints."""
    for each in (schema, *schema.get("anyOf", [])):
        if each.get("type") == "string":
            each["format"] = "date-time"


def _structs_in(types: Sequence[Any]) -> list[type[Any]]:
    """All structs that occur in these types."""
    found: dict[type[Any], None] = {}
    frontier = list(types)
    while frontier:
        kind = frontier.pop()
        frontier += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in found:
            found[kind] = None
            frontier += [field.type for field in msgspec.structs.fields(kind)]
    return list(found)


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema with references replaced by their definitions."""
    if isinstance(schema, Mapping):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return {name: _inlined(value, definitions) for name, value in schema.items() if name != "$defs"}
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]
    return schema


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
    for each in declared:
        method = each.method.lower()
        document["paths"].setdefault(each.path, {})[method] = described_paths[each.path][method]
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
        str(status): {"description": " ".join(details), "content": problem}
        for status, details in sorted(by_status.items())
    }


TAG = "documentation"
_FOLDER = Path(__file__).with_name("pages")
_FILES = {
    "docs.css": "text/css",
    "docs.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "vendor/swagger-ui.css": "text/css",
    "vendor/swagger-ui-bundle.js": "text/javascript",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FOREVER = {"cache-control": "private, max-age=31536000, immutable"}


class Documentation:
    """Routes of the API documentation. The document and the page are built at the first request."""

    def __init__(self, routes: Sequence[HTTPRouteHandler], *, needs_key: bool) -> None:
        self._routes = [
            route("GET", "/openapi.json", self.openapi, TAG),
            route("GET", "/docs", self.docs, TAG, media_types=("text/html; charset=utf-8",)),
            route("GET", "/docs/{digest}/{name}", self.docs_file, TAG, is_page=True, is_high_volume=True),
        ]
        self._described, self._needs_key = [*routes, *self._routes], needs_key
        self._document = b""
        self._files: dict[str, tuple[bytes, str]] = {}
        self._digest, self._page = "", b""

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of the documentation."""
        return self._routes

    async def openapi(self) -> Response[bytes]:
        """Describe this API as an OpenAPI 3.1 document."""
        if not self._document:
            self._document = msgspec.json.encode(describe(self._described, needs_key=self._needs_key))
        return Response(self._document, media_type="application/json")

    async def docs(self) -> Response[bytes]:
        """Show the documentation as a page with a search and with forms that send requests."""
        self._load()
        return Response(self._page, media_type="text/html", headers={"content-security-policy": _POLICY})

    async def docs_file(self, digest: str, name: str) -> Response[bytes]:
        """Send a file of the documentation page."""
        self._load()
        if digest != self._digest or name not in self._files:
            raise RequestFailed(ProblemType.NOT_FOUND, "there is no such file in this version; load the page again")
        content, kind = self._files[name]
        return Response(content, media_type=kind, headers=_FOREVER)

    def _load(self) -> None:
        if self._page:
            return
        self._files = {Path(name).name: ((_FOLDER / name).read_bytes(), kind) for name, kind in _FILES.items()}
        self._digest = sha256(b"".join(content for content, _ in self._files.values())).hexdigest()[:16]
        values: dict[str, Any] = {"{digest}": self._digest, "{problems}": "".join(map(_problem, ProblemType))}
        page = (_FOLDER / "index.html").read_text()
        for placeholder, value in values.items():
            page = page.replace(placeholder, value)
        self._page = page.encode()


def _problem(kind: ProblemType) -> str:
    title = f"{kind.value.status} <code>{kind.slug}</code> {_prose(kind.value.title)}"
    return f'<dt id="{kind.slug}">{title}</dt><dd>{_prose(kind.value.meaning)}</dd>'


def _prose(text: str) -> str:
    """Convert text with code in backquotes to HTML."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if n % 2 else piece for n, piece in enumerate(pieces))
