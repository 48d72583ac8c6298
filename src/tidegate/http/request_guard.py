"""Outermost ASGI layer: authenticates, counts and logs each request, and answers errors with problem documents."""

import asyncio
import time
from email.utils import formatdate
from typing import Any

from litestar import Response
from litestar.exceptions import LitestarException

from tidegate.core.errors import Unavailable
from tidegate.core.ids import new_id
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.http.asgi import Application, Message, Receive, Scope, Send, check_head, headers_of
from tidegate.http.authentication import Authenticator
from tidegate.http.callers import CALLER, LONGEST_PATH, REQUEST_ID, HttpCaller
from tidegate.http.dispatch import ANSWER_WITHIN
from tidegate.http.problems import ProblemType, RequestFailed, problem_response, to_trouble
from tidegate.http.routes import RouteDeclaration
from tidegate.http.security_headers import put_on
from tidegate.http.settings import HttpSettings
from tidegate.runtime.outage import Outage

log = get_logger(__name__)

VISIT = "tidegate.visit"
"""The key of the `Visit` in the scope of a request."""


class RequestGuard:
    """The ASGI application around the router."""

    def __init__(self, app: Application, settings: HttpSettings, *, door: Authenticator) -> None:
        self._app, self._door, self._outage = app, door, Outage("http")
        self._answer_within_s = settings.answer_within.total_seconds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; see ASGI."""
        visit = RequestLifecycle(scope, send, self._outage)
        scope |= {VISIT: visit, REQUEST_ID: visit.request_id, ANSWER_WITHIN: self._answer_within_s}
        try:
            check_head(scope)
            headers = headers_of(scope)
            peer = str(scope["client"][0]) if scope.get("client") else None
            caller = await self._door.admit(scope["method"], path_within(scope), headers, scope["scheme"], peer)
            scope[CALLER] = caller
            await self._serve(caller, scope, receive, visit)
        except Exception as error:
            trouble = visit.explain(error)
            if not visit.has_begun:
                await _send(problem_response(trouble, visit.request_id), visit)
        finally:
            visit.end()

    async def report(self, error: Exception, scope: Scope, send: Send) -> None:
        """Log an error of a raw handler, and answer its request with a problem."""
        visit = RequestLifecycle(scope, send, self._outage)
        try:
            await _send(problem_response(visit.explain(error), visit.request_id), visit)
        finally:
            visit.end()

    async def _serve(self, caller: HttpCaller, scope: Scope, receive: Receive, visit: "RequestLifecycle") -> None:
        """Call the application. A stream ends when the caller's session expires; a reconnect then needs a login."""
        # Wall-clock time until the end of the session, converted to a span once per request.
        session = asyncio.timeout(None if caller.until_ms is None else caller.until_ms / 1000 - time.time())
        try:
            async with session:
                await self._app(scope, receive, visit.send)
        except TimeoutError:
            # Another timeout, or nothing was sent yet: the error is answered by a problem.
            if not session.expired() or not visit.has_begun:
                raise
            await visit.send({"type": "http.response.body", "body": b"", "more_body": False})


def path_within(scope: Scope) -> str:
    """The path of a request, without the path on which this application is mounted in another one."""
    path, root = scope["path"], scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


async def _send(response: Response[bytes], visit: "RequestLifecycle") -> None:
    headers = {
        "content-type": str(response.media_type),
        "content-length": str(len(response.content)),
        **response.headers,
    }
    pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await visit.send({"type": "http.response.start", "status": response.status_code, "headers": pairs})
    await visit.send({"type": "http.response.body", "body": response.content})


class RequestLifecycle:
    """Records one request: its id, status, duration and error."""

    def __init__(self, scope: Scope, send: Send, outage: Outage) -> None:
        self.request_id = new_id()
        self._outage, self._error = outage, ""
        self.status, self._began_to_answer = 0, 0.0
        self._scope, self._send = scope, send
        self.route: RouteDeclaration | None = None
        """The route that answers; None until it is known."""
        self._began = time.monotonic()

    @property
    def has_begun(self) -> bool:
        """Whether the head of the answer was sent, so that the status cannot be changed."""
        return self.status != 0

    async def send(self, message: Message) -> None:
        """Send a message, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status, self._began_to_answer = message["status"], time.monotonic()
            headers = [(name.lower(), value) for name, value in message["headers"]]
            headers += [(b"date", formatdate(usegmt=True).encode()), (b"x-request-id", self.request_id.encode())]
            if all(name != b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            put_on(headers, self._scope)
            message = {**message, "headers": headers}
        await self._send(message)

    def explain(self, error: Exception) -> RequestFailed:
        """Convert an exception to a problem for the caller; details that callers may not see are logged."""
        # Litestar wraps errors that occur while it prepares a request; the cause decides.
        cause = error.__cause__ if isinstance(error, LitestarException) else None
        error = cause if isinstance(cause, Exception) else error
        trouble = to_trouble(error)
        if trouble is None:
            log.error("http.failed", **self._facts(), exc_info=error)
            return RequestFailed(ProblemType.FAILED, "an unexpected error occurred; the server's log has the details")
        # Errors of servers, and errors after the head was sent, which the caller cannot see as a status.
        if (trouble.status >= 500 and trouble is not error) or self.has_begun:
            self._error = str(error) or type(error).__name__
            if isinstance(error, Unavailable) and error.server:
                self._outage.note(error)
            else:
                log.warning("http.unavailable", **self._facts(), error=self._error)
        return trouble

    def end(self) -> None:
        """Count and log the request."""
        took_s = time.monotonic() - self._began
        # One label for all unknown paths: otherwise clients could create any number of metrics.
        route = self.route.path if self.route else "unknown"
        metrics.HTTP_REQUESTS.labels(route, self._scope["method"] if self.route else "unknown", str(self.status)).inc()
        if self.has_begun:
            metrics.HTTP_REQUEST_SECONDS.labels(route).observe(self._began_to_answer - self._began)
        facts = {**self._facts(), "status": self.status, "took_ms": round(took_s * 1000, 1)}
        if self._error:
            facts["error"] = self._error
        is_routine = self._scope["method"] in ("GET", "HEAD") and self.status < 400
        if is_routine or (self.route is not None and self.route.is_chatter):
            log.debug("http.answered", **facts)
        else:
            log.info("http.answered", **facts)

    def _facts(self) -> dict[str, Any]:
        path = self._scope["path"][:LONGEST_PATH]
        return {"request_id": self.request_id, "method": self._scope["method"], "path": path}
