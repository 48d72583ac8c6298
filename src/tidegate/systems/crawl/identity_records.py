"""Rows of identities. Every function except the first ones works in the caller's transaction; headers are only handled
encrypted.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import delete, func, select, update

from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.engine.credentials.vault import Label, Sealed
from tidegate.storage.sql import Transaction
from tidegate.systems.crawl.hosts import crawl_identities

_PREFIX = "crawl:"
_c = crawl_identities.c


class StoredIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """An identity with its encrypted headers."""

    name: str
    headers: str
    key_id: str
    enabled: bool
    created_at: datetime
    changed_at: datetime

    @property
    def label(self) -> Label:
        """The identity that its headers are bound to."""
        return label_of(self.name)

    @property
    def sealed(self) -> Sealed:
        """Its encrypted headers, with the key."""
        return Sealed(self.headers, self.key_id)


def label_of(name: str) -> Label:
    """The label that the headers of an identity are bound to."""
    return Label(name, "identity", "crawl")


def credential_of(name: str) -> str:
    """The name of an identity in the gate."""
    return _PREFIX + name


def name_of(credential: str) -> str:
    """The identity behind a credential of the gate."""
    if not credential.startswith(_PREFIX):
        raise InvalidArgument("credential", credential, "is not an identity")
    return credential.removeprefix(_PREFIX)


def put(tx: Transaction, name: str, sealed: Sealed) -> None:
    """Store an identity, or replace the headers of the one with this name; it is used from now on."""
    values = {"headers": sealed.text, "key_id": sealed.key_id, "enabled": True, "changed_at": tx.now}
    # Insert or update in all dialects: the insert skips an existing row, the update then writes it.
    tx.insert_many(crawl_identities, [values | {"name": name, "created_at": tx.now}], skip_existing=True)
    tx.execute(update(crawl_identities).where(_c.name == name).values(values))


def find(tx: Transaction, name: str) -> StoredIdentity | None:
    """Return one stored identity, or None."""
    row = tx.execute(select(crawl_identities).where(_c.name == name)).first()
    return None if row is None else msgspec.convert(row, StoredIdentity, from_attributes=True)


def everything(tx: Transaction) -> Sequence[StoredIdentity]:
    """All stored identities, by name."""
    rows = tx.execute(select(crawl_identities).order_by(_c.name))
    return [msgspec.convert(row, StoredIdentity, from_attributes=True) for row in rows]


def enable(tx: Transaction, name: str, *, enabled: bool) -> None:
    """Enable or disable an identity; raises `NotFound`."""
    values = {"enabled": enabled, "changed_at": tx.now}
    if not tx.execute(update(crawl_identities).where(_c.name == name).values(values)).rowcount:
        raise _unknown(tx, name)


def remove(tx: Transaction, name: str) -> None:
    """Delete an identity; raises `NotFound`."""
    if not tx.execute(delete(crawl_identities).where(_c.name == name)).rowcount:
        raise _unknown(tx, name)


def reseal(tx: Transaction, before: StoredIdentity, sealed: Sealed) -> bool:
    """Store the same headers encrypted with another key, unless they were replaced in the meantime."""
    values = {"headers": sealed.text, "key_id": sealed.key_id}
    is_same = (_c.name == before.name, _c.headers == before.headers)
    return tx.execute(update(crawl_identities).where(*is_same).values(values)).rowcount > 0


def has_identities(tx: Transaction) -> bool:
    """Whether an identity is stored, so that a key is needed."""
    return bool(tx.execute(select(func.count()).select_from(crawl_identities)).scalar_one())


def _unknown(tx: Transaction, name: str) -> NotFound:
    few = tx.execute(select(_c.name).order_by(_c.name).limit(10)).scalars()
    return NotFound("identity", name, known=few)
