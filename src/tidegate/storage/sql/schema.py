"""Metadata of all tables, and column types that mean the same on every server we support.

What belongs to one server's dialect is imported where it is used: a process imports the dialect of its own server only.
A test compares the declared tables with those that the migrations create, on every server.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Column, DateTime, Dialect, Index, Integer, LargeBinary, MetaData, String, Table, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from tidegate.core.arguments import require_positive
from tidegate.core.errors import InvalidArgument

TABLE_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    # Ids and keys that differ only by case are different, as on the other servers.
    "mysql_collate": "utf8mb4_bin",
}
"""For every table: `Table(..., **TABLE_OPTIONS)`."""

NUMBERED_TABLE_OPTIONS: dict[str, Any] = {
    **TABLE_OPTIONS,
    # A number once given is never given again, as on the other servers.
    "sqlite_autoincrement": True,
}
"""For every table with an `ascending_key`."""


class UtcDateTime(TypeDecorator[datetime]):
    """A moment to the microsecond. Naive datetimes are refused; what comes back is aware, in UTC."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """PostgreSQL keeps the zone; MySQL needs to be asked for fractions; SQLite has text that sorts by time."""
        match dialect.name:
            case "postgresql":
                return dialect.type_descriptor(DateTime(timezone=True))
            case "mysql" | "mariadb":
                from sqlalchemy.dialects.mysql import DATETIME

                return dialect.type_descriptor(DATETIME(fsp=6))
            case _:
                return dialect.type_descriptor(DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC, and without the zone where the server has none."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise InvalidArgument("datetime", value.isoformat(), "must have a time zone")
        moment = value.astimezone(UTC)
        return moment if dialect.name == "postgresql" else moment.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Attach the time zone UTC."""
        del dialect
        if value is None:
            return None
        # Servers without zones return naive datetimes, which were written in UTC.
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Json(TypeDecorator[Any]):
    """Any JSON value, kept as text: what was written comes back exactly, on every server.

    The servers' own JSON types disagree about large numbers, the order of keys and the character U+0000.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """MySQL's TEXT ends at 64 KB, so its longest one."""
        if dialect.name not in ("mysql", "mariadb"):
            return dialect.type_descriptor(Text())
        from sqlalchemy.dialects.mysql import LONGTEXT

        return dialect.type_descriptor(LONGTEXT())

    def process_bind_param(self, value: Any | None, dialect: Dialect) -> str | None:
        """As JSON text; None is SQL's NULL."""
        del dialect
        return None if value is None else encode_json(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any | None:
        """The value in the text."""
        del dialect
        return None if value is None else msgspec.json.decode(value)


class Blob(TypeDecorator[bytes]):
    """Bytes of any length."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """MySQL's BLOB ends at 64 KB, so its longest one."""
        if dialect.name not in ("mysql", "mariadb"):
            return dialect.type_descriptor(LargeBinary())
        from sqlalchemy.dialects.mysql import LONGBLOB

        return dialect.type_descriptor(LONGBLOB())


def encode_json(value: Any) -> str:
    """`value` as JSON text; `InvalidArgument` when it cannot be written as such."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgument("value", type(value).__name__, f"must be JSON: {error}") from None


def exact_text(length: int) -> String:
    """Text of at most `length` characters for ids, keys and names, compared exactly (see `TABLE_OPTIONS`)."""
    require_positive("length", length)
    return String(length)


def ordered_text(length: int) -> String:
    """As `exact_text`, compared by bytes on every server: for keys that are read in ranges."""
    return exact_text(length).with_variant(String(length, collation="C"), "postgresql")


def ascending_key() -> TypeEngine[int]:
    """A 64-bit number given by the server, each higher than those before."""
    # SQLite numbers rows by itself only in a column declared INTEGER; that one has 64 bits too.
    return BigInteger().with_variant(Integer(), "sqlite")


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

outbox_events = Table(
    "outbox_events",
    metadata,
    # Given by the server: two transactions that a lock put in order get their numbers in that order, whatever the
    # clocks of their processes say.
    Column("id", ascending_key(), primary_key=True),
    Column("event_id", exact_text(200), nullable=False, unique=True),
    Column("kind", exact_text(200), nullable=False),
    Column("event_key", exact_text(200), nullable=False),
    Column("payload", Json, nullable=False),
    Column("state", exact_text(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    # NULL is "at once": a new event must not wait because its writer's clock is ahead of the relay's.
    Column("not_before", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    Column("last_error", Text),
    Index(None, "state", "id"),
    Index(None, "state", "not_before", "event_key"),
    **NUMBERED_TABLE_OPTIONS,
)
"""Events on their way. A row is removed when its event was handled, so the table is as long as the work ahead."""

handled_events = Table(
    "handled_events",
    metadata,
    Column("handler", exact_text(200), primary_key=True),
    Column("event_id", exact_text(200), primary_key=True),
    Column("handled_at", UtcDateTime, nullable=False, index=True),
    **TABLE_OPTIONS,
)
"""Which handler has already handled which event."""
