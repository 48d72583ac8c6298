"""`/openapi.json` for programs and `/docs` for people: Swagger UI, served without files of other hosts."""

from collections.abc import Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler

from tidegate.http.openapi import describe
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.routes import route

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
            route("GET", "/docs/{digest}/{name}", self.docs_file, TAG, is_page=True, is_chatter=True),
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
