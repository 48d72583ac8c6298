"""All errors that Tidegate raises deliberately.

    TidegateError
    ├── InvalidArgument         an invalid value: the message names it and the reason (also a ValueError)
    ├── InvalidSettings         the configuration is invalid
    ├── Unavailable             a server cannot serve the request now; retry later
    │   ├── ValkeyUnavailable
    │   ├── DatabaseUnavailable
    │   │   └── CommitUnknown   the connection broke during a commit: it may have happened
    │   ├── CircuitOpen         a circuit breaker refuses calls until `retry_at_ms`
    │   ├── NoSpaceLeft         a disk is full; writes succeed again when there is space
    │   └── ServerRefused       the server answered and refuses requests until an operator changes something
    │       ├── ValkeyRefused   also a ValkeyUnavailable
    │       └── DatabaseRefused also a DatabaseUnavailable
    ├── ContractBroken          code and Lua, or code and schema, disagree
    ├── LeaseLost               the lease ended or passed to another owner
    ├── GrantVoid               the permit expired or was used: the call must not be made
    ├── TooManyWaiting          a queue of this process is full
    ├── Conflict                the request does not fit the current state
    ├── NoCredential            there is no valid credential for the call
    └── NotFound                no object has this id

Retry after `Unavailable` only; other errors do not go away by themselves.
"""

from collections.abc import Iterable
from typing import ClassVar

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Raised when foreign bytes are decoded: not JSON, not UTF-8, or nested too deeply."""


class TidegateError(Exception):
    """Base class of all errors that Tidegate raises."""

    problem: ClassVar[str] = ""
    """Name of the `ProblemType` of the HTTP answer; empty means an internal server error."""

    @property
    def public_message(self) -> str:
        """The message for external callers. It names no internal server."""
        return str(self)


class Conflict(TidegateError):
    """The request does not fit the current state."""

    problem = "conflict"


class InvalidArgument(TidegateError, ValueError):
    """The argument or setting `name` must not be `value`, because of `reason`."""

    problem = "invalid"

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"{name} is {value!r}: {reason}")
        self.name, self.value, self.reason = name, value, reason


class InvalidSettings(TidegateError):
    """The settings are invalid; the message names each invalid one and the reason."""


class Unavailable(TidegateError):
    """`server` cannot be reached or refuses requests. It is empty if none of the deployment's servers is the reason."""

    problem = "unavailable"
    server = ""
    is_reported = False
    """Whether the condition is already logged, so that callers that retry log nothing."""

    def __init__(self, message: str = "", *, server: str = "") -> None:
        super().__init__(message)
        if server:
            self.server = server

    @property
    def public_message(self) -> str:
        """A message without the name of the server."""
        return "a required server cannot be reached"


class ValkeyUnavailable(Unavailable):
    """Valkey did not answer, the connection broke, or it refuses requests."""

    server = "Valkey"


class DatabaseUnavailable(Unavailable):
    """The database did not answer, the connection broke, or it refuses requests."""

    server = "the database"


class CommitUnknown(DatabaseUnavailable):
    """The connection broke during a commit, so the outcome is unknown. Only idempotent work may be retried."""

    def __init__(self, server: str) -> None:
        super().__init__(f"{server}: the connection broke during a commit; its outcome is unknown", server=server)

    @property
    def public_message(self) -> str:
        """A message without the name of the server."""
        return "the connection to the database broke during a commit; its outcome is unknown"


class CircuitOpen(Unavailable):
    """Calls to `name` are refused until `retry_at_ms`, because too many failed."""

    is_reported = True

    def __init__(self, name: str, *, retry_at_ms: int) -> None:
        super().__init__(f"{name} failed too often; calls are refused for a while", server=name)
        self.name, self.retry_at_ms = name, retry_at_ms


class NoSpaceLeft(Unavailable):
    """The disk of `place` is full; nothing was written. `free_mb` is known for disks of this machine."""

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
        """A message without the name of the server."""
        return "a required server refuses requests until an operator changes something; the log has the reason"


class ValkeyRefused(ServerRefused, ValkeyUnavailable):
    """Valkey answered and refuses requests. Nothing was written, and no data was lost."""


class DatabaseRefused(ServerRefused, DatabaseUnavailable):
    """The database answered and refuses requests."""


class ContractBroken(TidegateError):
    """Two parts that must agree do not: a defect."""


class LeaseLost(TidegateError):
    """The lease `name` ended or passed to another owner."""

    def __init__(self, name: str) -> None:
        super().__init__(f"lease {name!r} was lost")
        self.name = name


class GrantVoid(TidegateError):
    """The permit expired or was used before: its call must not be made."""


class TooManyWaiting(TidegateError):
    """`most` callers wait in this process already; further ones are refused."""

    problem = "too_many"

    def __init__(self, name: str, *, most: int) -> None:
        super().__init__(f"{most} already wait for {name!r} in this process")
        self.name, self.most = name, most


class NoCredential(TidegateError):
    """There is no valid credential for a call; the message says for which."""

    problem = "no_credential"


class NotFound(TidegateError):
    """There is no `kind` with the id `ident`. `known` lists the existing ones if there are few."""

    problem = "not_found"

    def __init__(self, kind: str, ident: object, *, known: Iterable[str] = ()) -> None:
        others = ", ".join(sorted(known))
        super().__init__(f"there is no {kind} {ident!r}" + (f"; there is {others}" if others else ""))
        self.kind, self.ident = kind, ident
