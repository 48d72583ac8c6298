"""ASGI types, request headers, and limits of the request head: length of the address, size and number of headers.

The server refuses an incomplete head that is longer than `MOST_KEPT`. A head that arrives in one piece is not limited
there, so its size is checked here again.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from litestar import Request, Response
from litestar.datastructures import Headers

from tidegate.http.problems import ProblemType, RequestFailed

Scope = Any
"""A mutable mapping. The typed dictionaries of Litestar allow no further keys and differ from those of uvicorn."""
Message = Any
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Pair = tuple[bytes, bytes]
HttpRequest = Request[Any, Any, Any]
HttpResponse = Response[Any]

IS_HEAD: Final = "tidegate.is_head"
MOST_KEPT: Final = 32 * 1024
_LONGEST_ADDRESS: Final = 8 * 1024
MOST_HEADERS: Final = 100


def headers_of(scope: Scope) -> Headers:
    """The headers of a request."""
    return Headers.from_scope(scope)


def is_for_head(scope: Scope) -> bool:
    """Whether this is a HEAD request, which the application handles as a GET."""
    return scope["method"] == "HEAD" or scope.get(IS_HEAD, False)


def check_head(scope: Scope) -> None:
    """Raise `RequestFailed` if the head is too large or does not have exactly one `Host` header."""
    address = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])
    if address > _LONGEST_ADDRESS:
        raise RequestFailed(ProblemType.ADDRESS_TOO_LONG, f"the limit is {_LONGEST_ADDRESS:,} bytes", headers=_LAST)
    headers = scope["headers"]
    if len(headers) > MOST_HEADERS:
        raise RequestFailed(ProblemType.HEAD_TOO_LARGE, f"the limit is {MOST_HEADERS} headers", headers=_LAST)
    if sum(len(name) + len(value) for name, value in headers) > MOST_KEPT:
        raise RequestFailed(ProblemType.HEAD_TOO_LARGE, f"the limit is {MOST_KEPT:,} bytes", headers=_LAST)
    # Servers and proxies could choose different ones of several names.
    if scope["http_version"] == "1.1" and sum(name == b"host" for name, _ in headers) != 1:
        raise RequestFailed(ProblemType.BAD_REQUEST, "a request must have one Host header", headers=_LAST)


_LAST: Final = {"Connection": "close"}
"""The connection is closed after such a request."""
