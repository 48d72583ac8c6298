"""Static files of the page, named after their contents, so that browsers cache them permanently."""

from hashlib import sha256
from pathlib import Path

from litestar import Response

from tidegate.http.asgi import HttpResponse
from tidegate.http.problems import ProblemType, RequestFailed

FOLDER = "assets"
_FILES = Path(__file__).with_name(FOLDER)
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOR_EVER = {"cache-control": "public, max-age=31536000, immutable"}


class Assets:
    """All files, read once."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[bytes, str]] = {}
        self._names: dict[str, str] = {}
        for path in sorted(_FILES.iterdir()):
            if path.suffix in _KINDS:
                content = path.read_bytes()
                name = f"{path.stem}.{sha256(content).hexdigest()[:16]}{path.suffix}"
                self._names[path.name] = name
                self._answers[name] = content, _KINDS[path.suffix]

    def address(self, file: str) -> str:
        """The URL of a file, relative to the page of a room."""
        return f"{FOLDER}/{self._names[file]}"

    def answer(self, name: str) -> HttpResponse:
        """Serve a file by its versioned name."""
        found = self._answers.get(name)
        if found is None:
            raise RequestFailed(ProblemType.NOT_FOUND, "there is no such file; the page has the current names")
        return Response(found[0], media_type=found[1], headers=_FOR_EVER)
