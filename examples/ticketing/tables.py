"""The shop's own tables, in the database that Tidegate uses: so one transaction can hold a sale and its event."""

from sqlalchemy import Column, Index, Integer, MetaData, String, Table, UniqueConstraint

from tidegate import Database, Transaction
from tidegate.storage.sql import NUMBERED_TABLE_OPTIONS, TABLE_OPTIONS, UtcDateTime, ascending_key, exact_text

LONGEST_USER = 128
LONGEST_KEY = 100

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)

concerts = Table(
    "shop_concerts",
    metadata,
    Column("id", ascending_key(), primary_key=True),
    Column("title", String(120), nullable=False),
    Column("artist", String(120), nullable=False),
    Column("venue", String(120), nullable=False),
    **NUMBERED_TABLE_OPTIONS,
)

schedules = Table(
    "shop_schedules",
    metadata,
    Column("id", ascending_key(), primary_key=True),
    Column("concert_id", Integer, nullable=False),
    Column("starts_at", UtcDateTime, nullable=False),
    Index(None, "concert_id"),
    **NUMBERED_TABLE_OPTIONS,
)
"""An evening on which a concert is given. Each has seats of its own, and a waiting room."""

seats = Table(
    "shop_seats",
    metadata,
    Column("id", ascending_key(), primary_key=True),
    Column("schedule_id", Integer, nullable=False),
    Column("label", exact_text(16), nullable=False),
    Column("price", Integer, nullable=False),
    UniqueConstraint("schedule_id", "label"),
    **NUMBERED_TABLE_OPTIONS,
)
"""The seats. A seat has no state of its own: it is free unless a reservation claims it."""

reservations = Table(
    "shop_reservations",
    metadata,
    Column("id", exact_text(36), primary_key=True),
    Column("schedule_id", Integer, nullable=False),
    Column("seat_id", Integer, nullable=False),
    # The seat while this reservation holds or owns it, else NULL: the constraint prevents two claims of a seat.
    Column("claimed_seat", Integer, unique=True),
    Column("user_id", exact_text(LONGEST_USER), nullable=False),
    Column("state", exact_text(16), nullable=False),
    Column("held_until", UtcDateTime, nullable=False),
    Column("reserved_at", UtcDateTime, nullable=False),
    Index(None, "state", "held_until"),
    Index(None, "schedule_id", "user_id"),
    **TABLE_OPTIONS,
)

payments = Table(
    "shop_payments",
    metadata,
    Column("id", exact_text(36), primary_key=True),
    Column("reservation_id", exact_text(36), nullable=False),
    # The reservation while this payment is under way or completed, else NULL: so nothing is paid for twice.
    Column("paying_for", exact_text(36), unique=True),
    Column("user_id", exact_text(LONGEST_USER), nullable=False),
    Column("idempotency_key", exact_text(LONGEST_KEY), nullable=False),
    Column("amount", Integer, nullable=False),
    Column("state", exact_text(16), nullable=False),
    # From then on its outcome is read from the bank, also if the process that began it has died.
    Column("settle_at", UtcDateTime, nullable=False),
    Column("completed_at", UtcDateTime),
    # What the buyer shows at the entrance; it cannot be guessed.
    Column("ticket", exact_text(32), unique=True),
    UniqueConstraint("user_id", "idempotency_key"),
    Index(None, "state", "settle_at"),
    **TABLE_OPTIONS,
)


async def create_tables(database: Database) -> None:
    """Make the tables that are missing. One process does this, before the others start."""
    await database.transaction(_create)


def _create(tx: Transaction) -> None:
    metadata.create_all(tx.connection)
