"""Tables of rooms and admissions."""

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, Table, UniqueConstraint

from tidegate.storage.sql.schema import TABLE_OPTIONS, UtcDateTime, exact_text, metadata
from tidegate.systems.waiting_room.model import LONGEST_ENTRANCE, LONGEST_ROOM, LONGEST_TITLE, LONGEST_USER

waiting_rooms = Table(
    "waiting_rooms",
    metadata,
    Column("name", exact_text(LONGEST_ROOM), primary_key=True),
    Column("line", exact_text(36), nullable=False),
    Column("state", exact_text(16), nullable=False),
    Column("opens_at", UtcDateTime),
    Column("capacity", Integer, nullable=False),
    Column("admit_per_second", Double),
    Column("session_ms", Integer, nullable=False),
    Column("longest_session_ms", Integer, nullable=False),
    Column("abandon_ms", Integer, nullable=False),
    Column("log_length", Integer, nullable=False),
    Column("seed", exact_text(64), nullable=False),
    # Raised each time the room is installed on the server; voids admissions that began under an older epoch.
    Column("epoch", BigInteger, nullable=False),
    # The last arrival number that was reserved; no higher number was ever given.
    Column("reserved", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    # NULL in these columns means the default.
    Column("title", exact_text(LONGEST_TITLE)),
    Column("entrance", exact_text(LONGEST_ENTRANCE)),
    Column("anybody", Boolean),
    # Bits of the hash puzzle that a browser solves before it joins; NULL: none.
    Column("puzzle_bits", Integer),
    **TABLE_OPTIONS,
)
"""One row per room."""
room_tokens = Table(
    "room_tokens",
    metadata,
    Column("room", exact_text(LONGEST_ROOM), primary_key=True),
    Column("admission", BigInteger, primary_key=True, autoincrement=False),
    Column("user_id", exact_text(LONGEST_USER), nullable=False),
    # The user while the session is active, else NULL. With the constraint below, a user cannot be inside twice.
    Column("active_user", exact_text(LONGEST_USER)),
    Column("place", BigInteger),
    Column("is_guest", Boolean, nullable=False),
    Column("state", exact_text(16), nullable=False),
    Column("admitted_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("ends_at", UtcDateTime, nullable=False),
    # When the place became free; NULL while the session is active. The capacity limits the overlap of admitted_at to
    # ended_at, so that it can be audited from these rows.
    Column("ended_at", UtcDateTime),
    UniqueConstraint("room", "active_user"),
    Index(None, "room", "place"),
    # For the retention rule.
    Index(None, "ended_at"),
    **TABLE_OPTIONS,
)
"""One row per admission. SQL decides which visitors are inside."""
