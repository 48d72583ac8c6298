"""Everything Tidegate raises on purpose.

    TidegateError
    ├── InvalidArgument         a value no caller may pass: names it and says why (also a ValueError)
    ├── InvalidSettings         the configuration cannot be used as it stands
    ├── Unavailable             a server cannot serve us now; trying again later is right
    │   ├── ValkeyUnavailable
    │   ├── DatabaseUnavailable
    │   │   └── CommitUnknown   the connection broke during a commit: it may have happened
    │   ├── CircuitOpen         a breaker refuses calls until `retry_at_ms`
    │   ├── NoSpaceLeft         a disk is full; writes succeed again when there is space
    │   └── ServerRefused       the server answered and refuses requests until an operator changes something
    │       ├── ValkeyRefused   also a ValkeyUnavailable
    │       └── DatabaseRefused also a DatabaseUnavailable
    ├── ContractBroken          code and Lua, or code and schema, disagree
    ├── LeaseTaken              somebody else holds it for `remaining_ms` more
    ├── LeaseLost               we held it, and no longer do
    ├── GrantVoid               a permit that ended or was used: the call must not be made
    ├── TooManyWaiting          a line in this process is full
    ├── Conflict                what was asked for does not fit the current state
    ├── NoCredential            nobody may make this call: there is no valid secret for it
    └── NotFound                nothing has this id

Whoever catches `Unavailable` may retry; whoever catches anything else should not.
"""

from collections.abc import Iterable
from typing import ClassVar

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What comes of decoding bytes that somebody else wrote: no JSON, a text in it that is none, or nested too deeply."""


class TidegateError(Exception):
    """Base class of all errors that Tidegate raises."""

    problem: ClassVar[str] = ""
    """Name of the `ProblemType` that an HTTP caller is answered with; empty: an internal server error."""

    @property
    def public_message(self) -> str:
        """The message for a caller outside: it names no server behind this process."""
        return str(self)


class Conflict(TidegateError):
    """What was asked for does not fit the current state."""

    problem = "conflict"


class InvalidArgument(TidegateError, ValueError):
    """`name` may not be `value`, because of `reason`."""

    problem = "invalid"

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"{name} is {value!r}: {reason}")
        self.name, self.value, self.reason = name, value, reason


class InvalidSettings(TidegateError):
    """The settings as given cannot be used; the message names each and says why."""


class Unavailable(TidegateError):
    """`server` cannot be reached, or refuses requests, at this moment; empty where no server of ours is the reason."""

    problem = "unavailable"
    server = ""
    is_reported = False
    """Whether the log has a line for this condition already, so that a caller that tries again need not add one."""

    def __init__(self, message: str = "", *, server: str = "") -> None:
        super().__init__(message)
        if server:
            self.server = server

    @property
    def public_message(self) -> str:
        """Names no server."""
        return "a server that is needed cannot be reached"


class ValkeyUnavailable(Unavailable):
    """Valkey did not answer, the connection broke, or it refuses requests."""

    server = "Valkey"


class DatabaseUnavailable(Unavailable):
    """The database did not answer, the connection broke, or it refuses requests."""

    server = "the database"


class CommitUnknown(DatabaseUnavailable):
    """The connection broke during a commit: it may have happened or not. Only what is idempotent may be tried again."""

    def __init__(self, server: str) -> None:
        super().__init__(
            f"{server}: the connection broke during a commit, which may have happened or not", server=server
        )

    @property
    def public_message(self) -> str:
        """Names no server."""
        return "the connection to the database broke during a commit: it may have been done or not"


class CircuitOpen(Unavailable):
    """Calls to `name` are refused until `retry_at_ms`, because too many failed."""

    is_reported = True

    def __init__(self, name: str, *, retry_at_ms: int) -> None:
        super().__init__(f"{name} failed too often; it is tried again in due time", server=name)
        self.name, self.retry_at_ms = name, retry_at_ms


class NoSpaceLeft(Unavailable):
    """The disk of `place` is full: nothing was written. `free_mb` is known where the disk is one of this machine."""

    is_reported = True

    def __init__(self, place: str, *, free_mb: int | None = None) -> None:
        super().__init__(
            f"no space left on the disk of {place}"
            if free_mb is None
            else f"no space left in {place}: {free_mb} MB free",
            server=place,
        )
        self.place, self.free_mb = place, free_mb


class ServerRefused(Unavailable):
    """The server answered and refuses requests: wrong password, too old, a read-only replica, out of memory."""

    def __init__(self, server: str, what: str, *, remedy: str) -> None:
        super().__init__(f"{server}: {what}. {remedy}", server=server)
        self.what, self.remedy = what, remedy

    @property
    def public_message(self) -> str:
        """Names no server."""
        return "a server that is needed refuses us, which an operator has to see to; the log says why"


class ValkeyRefused(ServerRefused, ValkeyUnavailable):
    """Valkey answered and refuses requests. Nothing was written, and nothing it knew is lost."""


class DatabaseRefused(ServerRefused, DatabaseUnavailable):
    """The database answered and refuses requests."""


class ContractBroken(TidegateError):
    """Two parts that must agree do not; this is a defect, not a condition."""


class LeaseTaken(TidegateError):
    """Another owner holds the lease `name`, for at most `remaining_ms` more."""

    def __init__(self, name: str, *, remaining_ms: int) -> None:
        super().__init__(f"lease {name!r} is held by another owner for {remaining_ms} ms more")
        self.name, self.remaining_ms = name, remaining_ms


class LeaseLost(TidegateError):
    """The lease `name` ended, or passed to another owner, while we believed to hold it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"lease {name!r} is no longer ours")
        self.name = name


class GrantVoid(TidegateError):
    """The permit ended, or was used already: the call it stood for must not be made."""


class TooManyWaiting(TidegateError):
    """`most` callers already wait in this process; further ones are refused at once."""

    problem = "too_many"

    def __init__(self, name: str, *, most: int) -> None:
        super().__init__(f"{most} already wait for {name!r} in this process")
        self.name, self.most = name, most


class NoCredential(TidegateError):
    """There is no valid credential for a call; the message says for which."""

    problem = "no_credential"


class NotFound(TidegateError):
    """There is no `kind` with the id `ident`; `known` are those that there are, where they are few."""

    problem = "not_found"

    def __init__(self, kind: str, ident: object, *, known: Iterable[str] = ()) -> None:
        others = ", ".join(sorted(known))
        super().__init__(f"there is no {kind} {ident!r}" + (f"; there is {others}" if others else ""))
        self.kind, self.ident = kind, ident
