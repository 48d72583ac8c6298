"""Classifies the errors of database drivers by their meaning and by what the engine does about them.

| kind     | meaning                                              | what the engine does                               |
| -------- | ---------------------------------------------------- | -------------------------------------------------- |
| CONFLICT | others were in the way: deadlock, stale, busy        | runs the function again, a bounded number of times |
| BROKEN   | the connection, or the server behind it, is gone     | runs it again once, then `DatabaseUnavailable`     |
| FULL     | its disk is full; nothing was written                | `NoSpaceLeft`                                      |
| REFUSED  | the server will not serve us as things are           | `ServerRefused`, with the remedy                   |
| OTHER    | a constraint, a mistake in a statement               | leaves it to the caller                            |
"""

import sqlite3
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout


class DatabaseConnectionLost(Exception):
    """The connection was lost, or could not be made; the cause says how. Never leaves this package."""


class TransactionConflict(Exception):
    """Raised by the function of a transaction: rows that it needs are gone. The engine runs the function again."""


class DatabaseErrorKind(StrEnum):
    """Meaning of an error of a database."""

    CONFLICT = "conflict"
    BROKEN = "broken"
    FULL = "full"
    REFUSED = "refused"
    OTHER = "other"


@dataclass(frozen=True)
class Fault:
    """An error understood: its kind, the fact in a few words, and what an operator can do."""

    kind: DatabaseErrorKind
    what: str = ""
    remedy: str = ""


_WRONG_PASSWORD = Fault(
    DatabaseErrorKind.REFUSED, "it refused the user or the password", "Correct them in the database's URL"
)
_UNKNOWN_DATABASE = Fault(
    DatabaseErrorKind.REFUSED, "it has no such database", "Create it, or correct its name in the URL"
)
_NOT_ALLOWED = Fault(
    DatabaseErrorKind.REFUSED, "it does not let this user in", "Grant the user access, or use another one"
)
_READ_ONLY = Fault(
    DatabaseErrorKind.REFUSED, "it is read-only", "Point the URL at the primary server, or make the file writable"
)
_NO_SUCH_PLACE = Fault(
    DatabaseErrorKind.REFUSED,
    "the file cannot be opened",
    "Check that its folder exists and may be written by this user",
)
_NOT_A_DATABASE = Fault(
    DatabaseErrorKind.REFUSED,
    "the file is damaged or is no SQLite database",
    "Restore it from a backup, or name another file",
)
_CONFLICT = Fault(DatabaseErrorKind.CONFLICT, "other transactions were in the way")
_BROKEN = Fault(DatabaseErrorKind.BROKEN, "the connection broke")
_FULL = Fault(DatabaseErrorKind.FULL, "its disk is full")
_DISK_FAILED = Fault(DatabaseErrorKind.BROKEN, "the disk failed")
_OTHER = Fault(DatabaseErrorKind.OTHER)

UNCLEAR = (_DISK_FAILED, _NO_SUCH_PLACE)
"""What SQLite also says where it found no space for a file that it needs besides the database."""


def _unavailable(what: str) -> Fault:
    return Fault(DatabaseErrorKind.BROKEN, what)


_BY_SQLSTATE = {
    "40001": _CONFLICT,  # serialisation failure
    "40P01": _CONFLICT,  # deadlock
    "55P03": _CONFLICT,  # lock not available in time
    "28P01": _WRONG_PASSWORD,
    "28000": _NOT_ALLOWED,
    "3D000": _UNKNOWN_DATABASE,
    "25006": _READ_ONLY,
    "53300": _unavailable("it has no connection to spare"),
    "53100": _FULL,
    "57P01": _unavailable("it is shutting down"),
    "57P02": _unavailable("it crashed"),
    "57P03": _unavailable("it is starting or stopping"),
    "57P05": _BROKEN,  # idle too long
}

_BY_MYSQL_CODE = {
    1213: _CONFLICT,  # deadlock
    1205: _CONFLICT,  # lock wait timeout; MariaDB's error for NOWAIT
    3572: _CONFLICT,  # MySQL's error for NOWAIT
    1020: _CONFLICT,  # MariaDB's snapshot isolation: the row changed since it was read
    1045: _WRONG_PASSWORD,
    1698: _WRONG_PASSWORD,
    1044: _NOT_ALLOWED,
    1130: _NOT_ALLOWED,
    1129: _NOT_ALLOWED,
    1049: _UNKNOWN_DATABASE,
    1290: _READ_ONLY,
    1792: _READ_ONLY,
    1836: _READ_ONLY,
    1040: _unavailable("it has no connection to spare"),
    1203: _unavailable("it has no connection to spare"),
    1021: _FULL,
    1114: _FULL,  # the table is full: also what it says of a full disk
    1053: _unavailable("it is shutting down"),
    1927: _BROKEN,  # killed by an operator
    2002: _unavailable("it cannot be reached"),
    2003: _unavailable("it cannot be reached"),
    2006: _BROKEN,
    2013: _BROKEN,
    2014: _BROKEN,
    2055: _BROKEN,
    4031: _BROKEN,  # idle too long
}

_BY_SQLITE_CODE = {
    sqlite3.SQLITE_BUSY: _CONFLICT,
    sqlite3.SQLITE_LOCKED: _CONFLICT,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: _NO_SUCH_PLACE,
    sqlite3.SQLITE_NOTADB: _NOT_A_DATABASE,
    sqlite3.SQLITE_CORRUPT: _NOT_A_DATABASE,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: _DISK_FAILED,
}


def classify(error: BaseException) -> Fault:
    """What `error` means. An error that no database raised is OTHER, whatever it is."""
    match error:
        case TransactionConflict():
            return _CONFLICT
        case DatabaseConnectionLost():
            known = _by_code(error.__cause__) if error.__cause__ else None
            return known or _unavailable("it cannot be reached")
        case PoolTimeout():
            return _unavailable("all connections were busy for too long")
        case sqlite3.Error():
            return _by_code(error) or _OTHER
        case DBAPIError():
            known = _by_code(error.orig) if error.orig else None
            return known or (_BROKEN if error.connection_invalidated else _OTHER)
        case _:
            return _OTHER


def words_of(error: BaseException) -> BaseException:
    """The driver's own error, which has no statement in its message; any other error unchanged."""
    return error.orig if isinstance(error, StatementError) and error.orig is not None else error


def _by_code(error: BaseException) -> Fault | None:
    """Look under the wrappers: each library puts its own around the server's error."""
    seen: BaseException | None = error
    # SQLAlchemy keeps the driver's error in `orig`; drivers chain theirs by `__cause__`.
    while seen is not None:
        if found := _code_of(seen):
            return found
        seen = getattr(seen, "orig", None) or seen.__cause__
    return None


def _code_of(error: BaseException) -> Fault | None:
    if isinstance(error, sqlite3.Error):
        extended = getattr(error, "sqlite_errorcode", None)
        # The low byte of an extended code is the general one.
        return None if extended is None else _BY_SQLITE_CODE.get(extended & 0xFF)
    # An OSError also begins with a number, which would be taken for a code of MySQL.
    if error.args and isinstance(error.args[0], int) and not isinstance(error, OSError):
        return _BY_MYSQL_CODE.get(error.args[0])
    if type(error).__name__ == "InvalidCachedStatementError":
        return _CONFLICT  # asyncpg: a migration of another process made its prepared statements useless
    sqlstate = getattr(error, "sqlstate", None)
    if not isinstance(sqlstate, str):
        return None
    # Class 08 is everything about connections.
    return _BROKEN if sqlstate.startswith("08") else _BY_SQLSTATE.get(sqlstate)
