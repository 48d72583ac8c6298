"""Errors as callers see them: `application/problem+json` (RFC 9457), with one type for each kind of error.

The type is a URI on the documentation page, which explains it. A problem says what happened and what to do. It has no
traceback, no secret and no address of an internal server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import msgspec
from litestar import Response

from tidegate.core.errors import InvalidArgument, TidegateError
from tidegate.core.telemetry.redaction import redact_text

MEDIA_TYPE = "application/problem+json"
_RETRY_AFTER = {"Retry-After": "5"}


@dataclass(frozen=True)
class ProblemDeclaration:
    """Status, title and explanation of a problem type."""

    status: int
    title: str
    meaning: str


class ProblemType(Enum):
    """All problem types. The name gives the last part of the type's URI."""

    BAD_JSON = ProblemDeclaration(400, "The body is not JSON", "The detail has the position of the syntax error.")
    BAD_REQUEST = ProblemDeclaration(
        400, "Malformed HTTP request", "The server could not parse the request line or the headers."
    )
    KEY_NEEDED = ProblemDeclaration(
        401,
        "Authentication required",
        "Send a valid key as `Authorization: Bearer`, or log in with a key at `/v1/session`.",
    )
    SIGNATURE_REFUSED = ProblemDeclaration(
        401,
        "Invalid signature",
        "A delivery must be signed with a secret of this installation. Compare the secret of the webhook with the "
        "setting. The delivery was discarded.",
    )
    FOREIGN_HOST = ProblemDeclaration(
        403,
        "Host name not allowed",
        "Without an API key, the server answers only to loopback names, which protects it from DNS rebinding. "
        "Use 127.0.0.1 or localhost, add the name to `http.allowed_hosts`, or set an API key.",
    )
    FOREIGN_ORIGIN = ProblemDeclaration(
        403, "Request from a page of another site", "Pages of other sites may not send requests to this server."
    )
    ROLE_NEEDED = ProblemDeclaration(
        403,
        "Role not sufficient",
        "A key with the role `read` may read everything and change nothing. The detail names the role that is needed.",
    )
    CSRF_NEEDED = ProblemDeclaration(
        403,
        "CSRF token missing or wrong",
        "Requests with a session that change something must send the `csrf` of `/v1/session` in the header "
        "`X-Tidegate-CSRF`. Requests with a key need no token.",
    )
    PASS_REFUSED = ProblemDeclaration(
        403,
        "Pass not valid",
        "Send the latest pass of this room as `Tidegate-Pass` or in the room's cookie. A pass expires; each request "
        "for the visitor's place returns a new one.",
    )
    NOT_ACTIVE = ProblemDeclaration(403, "The session is not active", "The session is pending, expired or closed.")
    NOT_FOUND = ProblemDeclaration(
        404, "Not found", "There is no route with this path, or no object with the id in it."
    )
    METHOD_NOT_ALLOWED = ProblemDeclaration(405, "Method not allowed", "`Allow` lists the methods of this path.")
    TOO_SLOW = ProblemDeclaration(
        408, "Request timeout", "The body was not received in time. Nothing was done; send it again."
    )
    RUN_ACTIVE = ProblemDeclaration(
        409,
        "The user has an active run",
        "`run_id` and `Location` name the active run. It can be used instead of a new one.",
    )
    NO_CREDENTIAL = ProblemDeclaration(
        409, "No valid credential", "There is no valid credential for this user. Add one, and send the request again."
    )
    ROOM_CLOSED = ProblemDeclaration(
        409, "The room is closed", "Visitors cannot join it now. Waiting visitors keep their place."
    )
    CONFLICT = ProblemDeclaration(
        409, "Invalid state transition", "The operation is not possible in the current state."
    )
    TOO_LARGE = ProblemDeclaration(413, "The body is too large", "The detail has the limit.")
    ADDRESS_TOO_LONG = ProblemDeclaration(414, "The URI is too long", "The detail has the limit.")
    NOT_A_FORM = ProblemDeclaration(
        415, "The body must be a form", "Send `Content-Type: application/x-www-form-urlencoded`."
    )
    NOT_JSON = ProblemDeclaration(415, "The body must be JSON", "Send `Content-Type: application/json`.")
    INVALID = ProblemDeclaration(
        422, "Invalid value", "`field` names the value if it is known; the detail has the reason."
    )
    SECRET_REFUSED = ProblemDeclaration(
        422, "GitHub rejected the secret", "It was not stored. The detail has GitHub's reason."
    )
    TOO_MANY_ATTEMPTS = ProblemDeclaration(
        429,
        "Too many wrong keys",
        "No key is accepted from this address until the time in `Retry-After`, not even a valid one. Keys that the "
        "address used before, and sessions, are not affected.",
    )
    HEAD_TOO_LARGE = ProblemDeclaration(431, "The headers are too large", "There are too many, or they are too long.")
    FAILED = ProblemDeclaration(
        500, "Internal server error", "A defect of the server. Its log has the reason, with the `request_id`."
    )
    UNAVAILABLE = ProblemDeclaration(
        503, "Service unavailable", "Try again later. If the detail says so, the request may have taken effect."
    )
    TOO_MANY = ProblemDeclaration(503, "Too many connections", "This process is at its limit. Try again later.")

    @property
    def slug(self) -> str:
        """The last part of the type's URI."""
        return self.name.lower().replace("_", "-")

    @property
    def uri(self) -> str:
        """The type's URI: its explanation on the documentation page."""
        return f"/docs#{self.slug}"


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem document (RFC 9457)."""

    type: str
    """The problem type: a URI with its explanation."""
    title: str
    """The same for every problem of its type."""
    status: int
    detail: str
    """What happened in this case."""
    request_id: str
    """The id of the request in the server's log."""
    field: str | None = None
    """The invalid value, if there is exactly one: `$.since`, `limit`."""
    run_id: int | None = None
    """The active run, for the type `run-active`."""


class RequestFailed(Exception):
    """Raised by a handler; answered with a problem document."""

    def __init__(
        self,
        kind: ProblemType,
        detail: str,
        *,
        field: str | None = None,
        run_id: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.field, self.run_id = kind, detail, field, run_id
        self.headers = dict(headers or {})

    @property
    def status(self) -> int:
        """The HTTP status of the answer."""
        return self.kind.value.status

    def problem(self, request_id: str) -> Problem:
        """The problem document, without secrets."""
        return Problem(
            type=self.kind.uri,
            title=self.kind.value.title,
            status=self.status,
            detail=redact_text(self.detail),
            request_id=request_id,
            field=self.field,
            run_id=self.run_id,
        )


_TIMED_OUT = "the request timed out and was cancelled; it may or may not have taken effect"


def to_request_failed(error: BaseException) -> RequestFailed | None:
    """Convert an error to a problem by its class (`TidegateError.problem`); None for unexpected errors."""
    if isinstance(error, RequestFailed):
        return error
    if isinstance(error, TimeoutError):
        return RequestFailed(ProblemType.UNAVAILABLE, _TIMED_OUT, headers=_RETRY_AFTER)
    if not isinstance(error, TidegateError) or not error.problem:
        return None
    kind = ProblemType[error.problem.upper()]
    headers = dict(_RETRY_AFTER) if kind.value.status == 503 else {}
    run_id: int | None = None
    if kind is ProblemType.RUN_ACTIVE:
        run_id = getattr(error, "run_id", None)
        headers["Location"] = f"/v1/runs/{run_id}"
    field = error.name if isinstance(error, InvalidArgument) else None
    return RequestFailed(kind, error.public_message, field=field, run_id=run_id, headers=headers)


def problem_response(failure: RequestFailed, request_id: str) -> Response[bytes]:
    """The HTTP response with a problem document."""
    body = msgspec.json.encode(failure.problem(request_id))
    return Response(body, status_code=failure.status, headers=failure.headers, media_type=MEDIA_TYPE)
