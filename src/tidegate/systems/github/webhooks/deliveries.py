"""Deliveries in SQL: each is stored once, applied once, and deleted after a retention time."""

import zlib
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Column, Index, Integer, Table, func, select, update

from tidegate.engine.tables import collection_runs
from tidegate.runtime.retention import RetentionRule, TableRule
from tidegate.storage.documents import Staged, Written
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event
from tidegate.storage.sql.schema import TABLE_OPTIONS, Blob, UtcDateTime, exact_text, metadata

github_deliveries = Table(
    "github_deliveries",
    metadata,
    # `X-GitHub-Delivery`: the same when GitHub sends a delivery again.
    Column("id", exact_text(100), primary_key=True),
    Column("event", exact_text(60), nullable=False),
    Column("action", exact_text(60)),
    Column("repository", exact_text(200), nullable=False),
    Column("received_at", UtcDateTime, nullable=False),
    # NULL until its documents are committed.
    Column("applied_at", UtcDateTime),
    # Number of changed documents.
    Column("documents", Integer),
    # The payload, compressed; NULL once it is applied.
    Column("body", Blob),
    Index(None, "received_at"),
    **TABLE_OPTIONS,
)
"""One row per webhook delivery, to apply it once and to recognize redeliveries."""


EVENT = "github.webhook"
"""Kind of the outbox events; their payload is the id of a delivery."""
_c = github_deliveries.c
_LEVEL = 1


class WebhookDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery with a valid signature and a valid payload."""

    id: str
    event: str
    action: str | None
    repository: str
    """`owner/name` from the payload."""
    repository_id: int
    body: bytes
    """The compressed payload."""


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery in answers of the API."""

    id: str
    """GitHub's id of the delivery (`X-GitHub-Delivery`)."""
    event: str
    action: str | None
    repository: str
    received_at: datetime
    applied_at: datetime | None
    """None until it is applied; if that does not happen, see the dead letters."""
    documents: int | None
    """Number of changed documents."""


def compress(body: bytes) -> bytes:
    """Compress a payload for storage."""
    return zlib.compress(body, _LEVEL)


def accept(tx: Transaction, given: Sequence[WebhookDelivery]) -> set[str]:
    """Store deliveries, each with an event of the outbox; return the ids of those that are new.

    Events of one repository are delivered in the order in which they are stored.
    """
    new = list[WebhookDelivery]()
    for each in sorted(given, key=lambda each: each.id):  # concurrent processes insert in the same order
        row = {
            "id": each.id,
            "event": each.event,
            "action": each.action,
            "repository": each.repository,
            "received_at": tx.now,
            "body": each.body,
        }
        if tx.execute(tx.insert_if_absent(github_deliveries).values(row)).rowcount == 1:
            new.append(each)
    ids = {each.id for each in new}
    # In the order of arrival, not of the ids: events of one repository are applied in this order.
    inserted = [each for each in given if each.id in ids]
    once = {each.id: each for each in inserted}.values()
    outbox.add(tx, *(Event(EVENT, key=f"github:{each.repository_id}", payload=each.id) for each in once))
    return ids


def waiting(tx: Transaction, delivery_id: str) -> tuple[str, bytes] | None:
    """The event and payload of a delivery that is not applied yet; None if it is applied or deleted."""
    those = select(_c.event, _c.body).where(_c.id == delivery_id, _c.applied_at.is_(None))
    row = tx.execute(those).one_or_none()
    return None if row is None else (row.event, zlib.decompress(row.body))


def apply(tx: Transaction, delivery_id: str, staged: Staged) -> Written | None:
    """Write the documents of a delivery and mark it as applied. None if it was applied before: nothing is written."""
    mine = update(github_deliveries).where(_c.id == delivery_id, _c.applied_at.is_(None))
    # Marking comes first and locks the row: of two processes, one applies the delivery.
    if tx.execute(mine.values(applied_at=tx.now, body=None)).rowcount != 1:
        return None
    written = staged.apply(tx)
    count = written.changed + written.gone
    tx.execute(update(github_deliveries).where(_c.id == delivery_id).values(documents=count))
    return written


def latest_run(tx: Transaction) -> int:
    """The number of the newest run. A run that starts later reads all changes reported until now."""
    return tx.execute(select(func.max(collection_runs.c.id))).scalar() or 0


def recent(tx: Transaction, *, limit: int, only_waiting: bool = False) -> list[DeliveryView]:
    """The newest deliveries, optionally only those that are not applied yet."""
    columns = [_c[name] for name in DeliveryView.__struct_fields__]
    those = select(*columns).order_by(_c.received_at.desc(), _c.id).limit(limit)
    if only_waiting:
        those = those.where(_c.applied_at.is_(None))
    return [msgspec.convert(row, DeliveryView, from_attributes=True) for row in tx.execute(those)]


def rules(database: Database, *, kept: timedelta, dead_letters: timedelta) -> list[RetentionRule]:
    """Retention rules: applied deliveries are kept for `kept`, others as long as their dead letters."""
    return [
        TableRule(
            database, github_deliveries, kept, lambda before: [_c.received_at < before, _c.applied_at.is_not(None)]
        ),
        TableRule(
            database,
            github_deliveries,
            max(kept, dead_letters),
            lambda before: [_c.received_at < before],
            name="github_deliveries_unapplied",
        ),
    ]
