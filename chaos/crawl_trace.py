"""Triggers that record every write to a product and every end of a stored answer.

They record writes in their order, including those of which the product has no record.
"""

from collections import Counter
from typing import NamedTuple

from sqlalchemy import column, func, select, table, text

from tidegate.storage.sql import Database, Transaction
from tidegate.systems.crawl.stages import STAGES, Stage

Key = tuple[str, str]
"""Host and product."""

_TOUCHED = ""
_written = table("chaos_written", *(column(name) for name in ("seq", "host", "product_id", "stage", "raw", "hash")))
_ended = table("chaos_ended", column("raw"), column("state"))
_COLUMNS = "host VARCHAR(255), product_id VARCHAR(100), stage VARCHAR(16), raw BIGINT, hash VARCHAR(64)"
_NOTE_END = "INSERT INTO chaos_ended VALUES (NEW.id, NEW.state)"


class Applied(NamedTuple):
    """A part of a product got another content."""

    seq: int
    key: Key
    stage: Stage
    raw: int
    hash: str


async def install(database: Database) -> None:
    """Create the triggers in a new database; SQLite or PostgreSQL."""
    await database.transaction(_install)


def _install(tx: Transaction) -> None:
    if tx.dialect == "sqlite":
        seq = "INTEGER PRIMARY KEY AUTOINCREMENT"
        triggers = [
            f"CREATE TRIGGER chaos_new AFTER INSERT ON crawl_products BEGIN {_notes(is_new=True)} END",
            f"CREATE TRIGGER chaos_change AFTER UPDATE ON crawl_products BEGIN {_notes(is_new=False)} END",
            f"CREATE TRIGGER chaos_end AFTER UPDATE OF state ON crawl_raws WHEN NEW.state <> OLD.state"
            f" BEGIN {_NOTE_END}; END",
        ]
    else:
        seq = "BIGSERIAL PRIMARY KEY"
        triggers = [
            f"CREATE FUNCTION chaos_note_new() RETURNS trigger AS $$BEGIN {_notes(is_new=True)} RETURN NULL; END$$"
            " LANGUAGE plpgsql",
            f"CREATE FUNCTION chaos_note_change() RETURNS trigger AS $$BEGIN {_notes(is_new=False)} RETURN NULL; END$$"
            " LANGUAGE plpgsql",
            f"CREATE FUNCTION chaos_note_end() RETURNS trigger AS $$BEGIN {_NOTE_END}; RETURN NULL; END$$"
            " LANGUAGE plpgsql",
            "CREATE TRIGGER chaos_new AFTER INSERT ON crawl_products FOR EACH ROW EXECUTE FUNCTION chaos_note_new()",
            "CREATE TRIGGER chaos_change AFTER UPDATE ON crawl_products FOR EACH ROW"
            " EXECUTE FUNCTION chaos_note_change()",
            "CREATE TRIGGER chaos_end AFTER UPDATE OF state ON crawl_raws FOR EACH ROW"
            " WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION chaos_note_end()",
        ]
    tables = [
        f"CREATE TABLE chaos_written (seq {seq}, {_COLUMNS})",
        "CREATE TABLE chaos_ended (raw BIGINT, state TEXT)",
    ]
    for statement in [*tables, *triggers]:
        tx.execute(text(statement))


def _notes(*, is_new: bool) -> str:
    """That a row was written at all, and which of its parts are others now."""
    into = "INSERT INTO chaos_written (host, product_id, stage, raw, hash) SELECT NEW.host, NEW.product_id"
    notes = [f"{into}, '{_TOUCHED}', NULL, NULL;"]
    for stage in STAGES:
        before = "NULL" if is_new else f"OLD.{stage}_hash"
        now = f"NEW.{stage}_hash"
        notes.append(f"{into}, '{stage}', NEW.{stage}_raw, {now} WHERE {now} IS DISTINCT FROM {before};")
    return " ".join(notes)


def written_so_far(tx: Transaction) -> int:
    """The number of the last write; later writes have higher numbers."""
    return tx.execute(select(func.coalesce(func.max(_written.c.seq), 0))).scalar_one()


def applied_after(tx: Transaction, mark: int) -> list[Applied]:
    """Every content that a part of a product got, in order."""
    at = _written.c
    found = select(at.seq, at.host, at.product_id, at.stage, at.raw, at.hash)
    rows = tx.execute(found.where(at.seq > mark, at.stage != _TOUCHED).order_by(at.seq))
    return [Applied(seq, (host, product), Stage(stage), raw, told) for seq, host, product, stage, raw, told in rows]


def touched_after(tx: Transaction, mark: int) -> set[Key]:
    """Products with written rows, for any reason."""
    at = _written.c
    rows = tx.execute(select(at.host, at.product_id).distinct().where(at.seq > mark, at.stage == _TOUCHED))
    return {(host, product) for host, product in rows}


def ends(tx: Transaction) -> Counter[tuple[int, str]]:
    """How often each stored answer came into each state."""
    rows = tx.execute(select(_ended.c.raw, _ended.c.state, func.count()).group_by(_ended.c.raw, _ended.c.state))
    return Counter({(raw, state): count for raw, state, count in rows})
