"""`/openapi.json` for machines, and `/docs` for people: one page that needs nothing from anywhere else."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Any

import msgspec
from starlette.responses import Response

from tidegate import __version__
from tidegate.http.callers import Role
from tidegate.http.endpoints import Endpoint
from tidegate.http.openapi import ROLE, describe
from tidegate.http.problems import ProblemType

TAG = "documentation"
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h2{margin-top:2.5rem;border-bottom:1px solid #d0d7de}
code,pre{font:13px/1.5 ui-monospace,monospace;background:#f3f5f7;border-radius:4px}
code{padding:.1em .3em}pre{padding:.7em;overflow:auto}
details{border:1px solid #d0d7de;border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}
summary b{display:inline-block;width:4.5rem}
td{padding:.1rem 1rem .1rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}code,pre{background:#1c2330}}
"""
_STYLE_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'",
}


class Documentation:
    """The handlers; what they tell is made once."""

    def __init__(self, endpoints: Sequence[Endpoint], *, needs_key: bool) -> None:
        self._endpoints = [
            Endpoint("GET", "/openapi.json", self.openapi, TAG),
            Endpoint("GET", "/docs", self.docs, TAG, media_types=("text/html; charset=utf-8",)),
        ]
        described = [endpoint for endpoint in endpoints if not endpoint.is_page]
        document = describe([*described, *self._endpoints], needs_key=needs_key)
        self._document, self._page = msgspec.json.encode(document), page_of(document).encode()

    def endpoints(self) -> Sequence[Endpoint]:
        """What is told."""
        return self._endpoints

    async def openapi(self) -> Response:
        """Tell what can be asked here, as an OpenAPI document."""
        return Response(self._document, media_type="application/json")

    async def docs(self) -> Response:
        """Tell the same to people."""
        return Response(self._page, media_type="text/html", headers=_HEADERS)


def page_of(document: Mapping[str, Any]) -> str:
    """The document as a page."""
    operations = [
        (tag["name"], method.upper(), path, operation)
        for tag in document["tags"]
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if tag["name"] in operation["tags"]
    ]
    body = [f"<h1>Tidegate {escape(__version__)}</h1>", f"<p>{escape(document['info']['summary'])} "]
    body += ['The same for machines: <a href="openapi.json">openapi.json</a>. Where the server has a key, ']
    body += ["callers send it as <code>Authorization: Bearer</code>, or log in with it. What only a key of the role "]
    body += ["<code>operate</code> may do says so.</p>"]
    for tag in document["tags"]:
        body.append(f"<h2>{escape(tag['name'].capitalize())}</h2>")
        body += [_operation(method, path, each) for name, method, path, each in operations if name == tag["name"]]
    body += ["<h2>Problems</h2>", "<p>Whatever goes wrong is told as <code>application/problem+json</code>.</p>"]
    body += [_problem(kind) for kind in ProblemType]
    body += ["<h2>Schemas</h2>", *_schemas(document["components"]["schemas"])]
    head = f'<meta charset="utf-8"><title>Tidegate</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>'


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    role = " <small>operate</small>" if operation.get(ROLE) == Role.OPERATE.value else ""
    title = f"<b>{method}</b> <code>{escape(path)}</code> {_prose(operation['summary'])}{role}"
    inside = [f"<p>{_prose(operation['description'])}</p>"] if "description" in operation else []
    inside += [_row_table(_parameter(each) for each in operation.get("parameters", []))]
    if "requestBody" in operation:
        inside.append(f"<p>Body: {_reference(operation['requestBody']['content']['application/json']['schema'])}</p>")
    inside.append(_row_table(_response(status, each) for status, each in operation["responses"].items()))
    return f"<details><summary>{title}</summary>{''.join(inside)}</details>"


def _row_table(rows: Iterable[Sequence[str]]) -> str:
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>" if lines else ""


def _parameter(parameter: Mapping[str, Any]) -> Sequence[str]:
    schema = escape(msgspec.json.encode(parameter["schema"]).decode())
    meaning = _prose(parameter.get("description", ""))
    return f"<code>{escape(parameter['name'])}</code>", f"in the {parameter['in']}", f"<code>{schema}</code>", meaning


def _response(status: str, response: Mapping[str, Any]) -> Sequence[str]:
    schema = response.get("content", {}).get("application/json", {}).get("schema")
    return f"<code>{status}</code>", _prose(response["description"]) + (f" {_reference(schema)}" if schema else "")


def _reference(schema: Mapping[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    return f'<a href="#schema-{escape(name)}">{escape(name)}</a>' if name else ""


def _problem(kind: ProblemType) -> str:
    told = f"<b>{kind.value.status}</b> <code>{kind.slug}</code> {_prose(kind.value.title)}"
    return f'<p id="{kind.slug}">{told}<br>{_prose(kind.value.meaning)}</p>'


def _schemas(schemas: Mapping[str, Any]) -> list[str]:
    return [
        f'<details id="schema-{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        f"<pre>{escape(msgspec.json.format(msgspec.json.encode(schema)).decode())}</pre></details>"
        for name, schema in sorted(schemas.items())
    ]


def _prose(text: str) -> str:
    """Words with `code` in them."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if n % 2 else piece for n, piece in enumerate(pieces))
