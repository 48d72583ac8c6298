"""What goes wrong, as it is told to callers: `application/problem+json` (RFC 9457), one type for each kind of trouble.

The type is an address on the page of documentation, where it is explained. What a caller gets to read says what
happened and what to do; it holds no traceback, no secret, and no address of a server behind us.
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
    """One kind of trouble: its status, its title, and what it means to a caller."""

    status: int
    title: str
    meaning: str


class ProblemType(Enum):
    """Every kind of trouble that there is, by the last word of its type."""

    BAD_JSON = ProblemDeclaration(
        400, "The body is no JSON", "It could not be read at all; the detail says where reading ended."
    )
    BAD_REQUEST = ProblemDeclaration(400, "The request is no HTTP", "The server could not read its first lines.")
    KEY_NEEDED = ProblemDeclaration(
        401,
        "An API key is needed",
        "Send `Authorization: Bearer` with a key that this server knows, or log in with one at `/v1/session`.",
    )
    SIGNATURE_REFUSED = ProblemDeclaration(
        401,
        "The signature is wrong",
        "A delivery must be signed with a secret of this installation: compare the secret of the webhook with the "
        "setting. Nothing was read.",
    )
    FOREIGN_HOST = ProblemDeclaration(
        403,
        "This server is not called so",
        "Without an API key it answers only to loopback names, so that no web page can reach it by a name of its own. "
        "Call it 127.0.0.1 or localhost, add the name to `http.allowed_hosts`, or set an API key.",
    )
    FOREIGN_ORIGIN = ProblemDeclaration(
        403, "The request comes from a page of another site", "Browsers may not act here on behalf of other sites."
    )
    ROLE_NEEDED = ProblemDeclaration(
        403,
        "The key may not do this",
        "A key of the role `read` may look at everything and change nothing. The detail names the role that is needed.",
    )
    CSRF_NEEDED = ProblemDeclaration(
        403,
        "The request must say which page sent it",
        "Whoever acts with a session sends what `/v1/session` told as `csrf` in the header `X-Tidegate-CSRF`. Whoever "
        "sends a key need not.",
    )
    PASS_REFUSED = ProblemDeclaration(
        403,
        "The pass is not good here",
        "Show the pass that was last given for this room, as `Tidegate-Pass` or in the room's cookie. Its time is "
        "limited: whoever waits is given a new one whenever he asks where he stands.",
    )
    NOT_ACTIVE = ProblemDeclaration(403, "The user is not inside", "He waits, his session is over, or he left.")
    NOT_FOUND = ProblemDeclaration(
        404, "There is no such thing", "Nothing has this address, or nothing has the id in it."
    )
    METHOD_NOT_ALLOWED = ProblemDeclaration(
        405, "This cannot be done here", "`Allow` lists the methods that the address knows."
    )
    TOO_SLOW = ProblemDeclaration(408, "The body came too slowly", "Nothing was done. Send it again.")
    RUN_ACTIVE = ProblemDeclaration(
        409,
        "The user has an active run",
        "`run_id` and `Location` name it. Whoever wanted this user collected can take it for their own.",
    )
    NO_CREDENTIAL = ProblemDeclaration(
        409, "Nobody may make the calls", "There is no valid credential for this user. Add one, and ask again."
    )
    ROOM_CLOSED = ProblemDeclaration(
        409, "The room is closed", "Nobody may join its line now. Who waits keeps his place."
    )
    CONFLICT = ProblemDeclaration(
        409, "It is in no state for this", "What was asked for does not fit how things stand now."
    )
    TOO_LARGE = ProblemDeclaration(413, "The body is too large", "The detail says how large it may be.")
    ADDRESS_TOO_LONG = ProblemDeclaration(414, "The address is too long", "The detail says how long it may be.")
    NOT_A_FORM = ProblemDeclaration(415, "The body must be a form", "Here only the buttons of the page are heard.")
    NOT_JSON = ProblemDeclaration(415, "The body must be JSON", "Send `Content-Type: application/json`.")
    INVALID = ProblemDeclaration(
        422, "A value cannot be used", "`field` names it where it is known; the detail says why."
    )
    SECRET_REFUSED = ProblemDeclaration(
        422, "GitHub refuses the secret", "It was not stored. The detail has GitHub's reason."
    )
    TOO_MANY_ATTEMPTS = ProblemDeclaration(
        429,
        "Too many wrong keys",
        "No key is accepted from this address for a while, also no right one: `Retry-After` says how long. Keys that "
        "the address used before, and sessions, are not affected.",
    )
    HEAD_TOO_LARGE = ProblemDeclaration(
        431, "The headers are too large", "They are too many, or too long; the detail says how."
    )
    FAILED = ProblemDeclaration(
        500, "We failed", "This is a defect of ours. The log of the server has the reason beside the `request_id`."
    )
    UNAVAILABLE = ProblemDeclaration(
        503, "A server behind us is away", "Try again later. Where the detail says so, it may have been done."
    )
    TOO_MANY = ProblemDeclaration(
        503, "Too many at once", "This process serves as many as it can. Try again later, or elsewhere."
    )

    @property
    def slug(self) -> str:
        """The last word of its type."""
        return self.name.lower().replace("_", "-")

    @property
    def uri(self) -> str:
        """The address at which it is explained."""
        return f"/docs#{self.slug}"


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong with a request."""

    type: str
    """Which kind of trouble it is; an address at which that is explained."""
    title: str
    """The same for every problem of its type."""
    status: int
    detail: str
    """What happened this time."""
    request_id: str
    """What the server's log calls the request."""
    field: str | None = None
    """The value that cannot be used, where it is a single one: `$.since`, `limit`."""
    run_id: int | None = None
    """The run that is in the way."""


class RequestFailed(Exception):
    """Raised by a handler: becomes a problem."""

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
        """Of the answer."""
        return self.kind.value.status

    def told(self, request_id: str) -> Problem:
        """For the caller."""
        return Problem(
            type=self.kind.uri,
            title=self.kind.value.title,
            status=self.status,
            detail=redact_text(self.detail),
            request_id=request_id,
            field=self.field,
            run_id=self.run_id,
        )


_TIMED_OUT = "it took too long and was given up; it may have been done or not"


def to_trouble(error: BaseException) -> RequestFailed | None:
    """What an error means to a caller, as its class says (`TidegateError.problem`); None for a defect of ours."""
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


def problem_response(trouble: RequestFailed, request_id: str) -> Response[bytes]:
    """The answer."""
    body = msgspec.json.encode(trouble.told(request_id))
    return Response(body, status_code=trouble.status, headers=trouble.headers, media_type=MEDIA_TYPE)
