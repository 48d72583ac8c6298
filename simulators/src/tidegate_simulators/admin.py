"""Admin endpoints, `/admin/`: report, change the data, inject faults. No limits apply, and nothing is counted."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from tidegate_simulators.errors import InvalidArgument, NotFound
from tidegate_simulators.http_server import Reply, Request, error, json_reply

PREFIX = b"/admin/"
Query = Mapping[str, str]
Actions = Mapping[tuple[str, str], Callable[[Query, bytes], Any]]
"""What can be done, by method and name."""
ActionsOnOne = Mapping[tuple[str, str], Callable[[int, Query], Any]]
"""What can be done with one object; its number follows the name."""


class AdminEndpoints:
    """Answers with JSON; an invalid request gets 400 and the reason."""

    def __init__(self, actions: Actions, on_one: ActionsOnOne) -> None:
        self._actions, self._on_one = actions, on_one

    def handle(self, request: Request, body: bytes) -> Reply:
        """Execute an admin request."""
        method = request.method.decode().replace("HEAD", "GET")
        query = dict(parse_qsl(request.query.decode("latin-1")))
        name, _, number = request.path.removeprefix(PREFIX).decode("latin-1").partition("/")
        try:
            if number and (method, name) in self._on_one:
                return json_reply(200, self._on_one[method, name](_number(number), query))
            action = None if number else self._actions.get((method, name))
            if action is None:
                return error(404, "unknown", f"There is no {method} {request.path.decode('latin-1')}.")
            return json_reply(200, action(query, body))
        except NotFound as missing:
            return error(404, "not_found", str(missing))
        except (InvalidArgument, msgspec.DecodeError) as nonsense:
            return error(400, "nonsense", str(nonsense))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InvalidArgument("number", text, "must be that of something")
    return int(text)
