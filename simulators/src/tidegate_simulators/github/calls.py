"""A call as the simulator sees it."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate_simulators.github.routes import Match


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of limits: a user, an installation, an app, or an address without a token."""

    kind: str
    number: int
    name: str

    @property
    def key(self) -> str:
        """The owner's name in the report."""
        return f"{self.kind}:{self.name}"

    @property
    def described(self) -> str:
        """The owner as refusals name it."""
        return self.name if self.kind == "address" else f"{self.kind} ID {self.number}"


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, and its token."""

    owner: Owner
    token_name: str
    """Distinguishes tokens of one owner in the report; not the token."""
    mark: bytes = b""
    """What ETags are made with; each token has its own."""
    scopes: frozenset[str] | None = frozenset({"read:org", "read:user", "repo"})
    """Of a classic token; None for other tokens."""
    is_signed_on: bool = True
    """Whether the token was authorized for the single sign-on of organizations."""
    quota: int | None = None
    """Calls per window, where the owner has an allowance of its own."""

    @property
    def is_authorised(self) -> bool:
        """Whether there was a token, and a good one."""
        return self.owner.kind != "address"


@dataclass(slots=True)
class Call:
    """One request to the simulator."""

    method: str
    origin: str
    path: str
    raw_query: str
    query: Mapping[str, str]
    match: Match
    headers: Mapping[str, str]
    body: bytes
    caller: Caller
    at: float
    """When it was read, in seconds since the epoch."""
    delay_s: float = 0
    """It came at most so long before."""

    @property
    def url(self) -> str:
        """The path with its query."""
        return f"{self.path}?{self.raw_query}" if self.raw_query else self.path
