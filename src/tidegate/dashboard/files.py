"""Serves the page of the dashboard and its static files.

The page contains no data, so it needs no key. The files are served under a digest of all of them, so that browsers
cache them permanently and never mix two versions.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from litestar import Response
from litestar.handlers import HTTPRouteHandler

from tidegate.http.asgi import HttpResponse
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.routes import route

TAG = "dashboard"
PAGE = "index.html"
PLACEHOLDER = b"{digest}"
"""Placeholder for the digest in the page."""
_FILES = Path(__file__).with_name("files")
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_FOR_EVER = "public, max-age=31536000, immutable"


class Files:
    """The static files, read once."""

    def __init__(self, folder: Path = _FILES) -> None:
        found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if _is_ours(path)}
        contents = {name: path.read_bytes() for name, path in found.items()}
        self.digest = _digest_of(contents)
        # The page is part of the digest and refers to it, so its placeholder is filled afterwards.
        page = contents.pop(PAGE, b"").replace(PLACEHOLDER, self.digest.encode())
        self._page = page
        self._answers = {name: (content, _KINDS[found[name].suffix]) for name, content in contents.items()}

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of the page and its files."""
        pages, everything = (_KINDS[".html"],), tuple(_KINDS.values())
        return [
            route("GET", "/", self.show_page, TAG, media_types=pages, is_open=True, is_page=True, is_high_volume=True),
            route(
                "GET",
                "/assets/{digest}/{name:path}",
                self.show_file,
                TAG,
                media_types=everything,
                is_open=True,
                is_page=True,
                is_high_volume=True,
            ),
        ]

    async def show_page(self) -> HttpResponse:
        """Send the page of the dashboard."""
        headers = {"cache-control": "no-cache", "content-security-policy": _POLICY}
        return Response(self._page, headers={**headers, "content-type": _KINDS[".html"]})

    async def show_file(self, digest: str, name: str) -> HttpResponse:
        """Show a file of the dashboard."""
        answer = self._answers.get(name) if digest == self.digest else None
        if answer is None:
            raise RequestFailed(ProblemType.NOT_FOUND, "there is no such file in this version; load the page again")
        content, kind = answer
        return Response(content, headers={"cache-control": _FOR_EVER, "content-type": kind})


def _is_ours(path: Path) -> bool:
    """Whether the file is served; backup files of editors are not."""
    return path.suffix in _KINDS and not path.name.startswith(".") and path.is_file()


def _digest_of(contents: Mapping[str, bytes]) -> str:
    """A digest of all names and contents."""
    whole = sha256()
    for name, content in contents.items():
        whole.update(sha256(name.encode()).digest() + sha256(content).digest())
    return whole.hexdigest()[:16]
