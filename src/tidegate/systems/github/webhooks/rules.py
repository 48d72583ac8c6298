"""Rules that convert a change from a webhook to a conditional write. A document is never replaced by an older one.

Most items have the time of their last update, in whole seconds. Of two changes in the same second, the one that
arrives last is stored, until a run reads the item from GitHub again.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from tidegate.storage.documents import ConditionalWrite, Document, StoredDocument, WriteAction
from tidegate.storage.documents.store import is_older

FINAL = 2**62
"""Sweep of a permanently deleted item: no run restores it, even if a list still shows it for a moment."""


def newest(document: Document) -> ConditionalWrite:
    """Write the document unless the stored one is newer, equal or deleted."""

    def decide(old: StoredDocument | None) -> WriteAction:
        if old is None:
            return WriteAction.WRITE
        # Equal content is skipped, so that a redelivery changes no time of the document.
        is_known = old.fingerprint == document.fingerprint or is_older(document.version, old.version)
        return WriteAction.SKIP if is_known or old.gone_at is not None else WriteAction.WRITE

    return ConditionalWrite(document, decide)


def only_new(document: Document) -> ConditionalWrite:
    """Write the document unless one with this id is stored, whatever its content."""
    return ConditionalWrite(document, lambda old: WriteAction.WRITE if old is None else WriteAction.SKIP)


def successor(document: Document, before: Mapping[str, Any]) -> ConditionalWrite:
    """Write an item that has no timestamp, if the stored one is the state `before` the change.

    Otherwise the change or a later one is stored already, or an earlier one is missing, which the next run reads.
    """

    def decide(old: StoredDocument | None) -> WriteAction:
        if old is None:
            return WriteAction.WRITE
        if old.gone_at is not None or old.fingerprint == document.fingerprint:
            return WriteAction.SKIP
        # Compare with the state before the change: without a time, only that shows the order.
        stored = old.body
        return (
            WriteAction.WRITE if all(stored.get(name) == value for name, value in before.items()) else WriteAction.SKIP
        )

    return ConditionalWrite(document, decide)


def permanently_deleted(document: Document) -> ConditionalWrite:
    """Mark the document as permanently gone; an unknown one is stored as gone, so that no later delivery creates it."""
    return ConditionalWrite(msgspec.structs.replace(document, sweep=FINAL), _remove_unless_gone)


def marked_gone(document: Document) -> ConditionalWrite:
    """Mark the document as gone; a later run may find it again."""
    return ConditionalWrite(document, _remove_unless_gone)


def starred(document: Document, at: str) -> ConditionalWrite:
    """Write a star unless it is stored; one that was removed since then is not restored."""

    def decide(old: StoredDocument | None) -> WriteAction:
        if old is None:
            return WriteAction.WRITE
        if old.gone_at is None:
            return WriteAction.SKIP
        return WriteAction.WRITE if at > f"{old.gone_at:%Y-%m-%dT%H:%M:%SZ}" else WriteAction.SKIP

    return ConditionalWrite(document, decide)


def _remove_unless_gone(old: StoredDocument | None) -> WriteAction:
    return WriteAction.SKIP if old is not None and old.gone_at is not None else WriteAction.REMOVE
