"""The address from which the data of a source comes. It cannot change while there is data.

Ids, logins, ETags and cursors are valid at one address only. If two addresses were collected into one database, each
would overwrite the items of the other and mark the other's items as gone.
"""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit, urlunsplit

from sqlalchemy import select, update

from tidegate.core.arguments import require_name
from tidegate.core.errors import Conflict, InvalidArgument
from tidegate.engine.tables import collection_places, collection_runs
from tidegate.storage.sql import Transaction

_LONGEST = 500


class SourceAddressConflict(Conflict):
    """The stored data was collected from another address."""

    def __init__(self, source: str, present: str, wanted: str) -> None:
        super().__init__(f"the {source} data in this database is from {present}, not from {wanted}")
        self.source, self.present, self.wanted = source, present, wanted

    @property
    def public_message(self) -> str:
        """The message without the addresses, which may be internal."""
        return f"the {self.source} data in this database was collected from another address"


@runtime_checkable
class AddressedSource(Protocol):
    """A source with a fixed address."""

    @property
    def address(self) -> str:
        """The address from which its data comes."""
        ...


def register_source_address(tx: Transaction, source: str, address: str, moved_from: str | None = None) -> bool:
    """Record that the data of `source` comes from `address`. Returns True if the record was added or changed.

    Raises `SourceAddressConflict` if runs have collected from another address. If the upstream has moved to `address`,
    pass its recorded address as `moved_from`: then the record is changed.
    """
    wanted = _normal(address)
    place = collection_places.c
    # Of two processes that start at the same time, the second waits and finds the address of the first.
    settled, is_new = tx.insert_or_lock(collection_places, _row(source, wanted), key="source")
    present: str = settled.address
    if is_new:
        return True
    if present == wanted:
        return False
    has_runs = tx.execute(select(collection_runs.c.id).where(collection_runs.c.source == source).limit(1)).first()
    if has_runs is not None and (moved_from is None or _normal(moved_from) != present):
        raise SourceAddressConflict(source, present, wanted)
    tx.execute(update(collection_places).where(place.source == source).values(address=wanted))
    return True


def require_source_address(tx: Transaction, source: str, address: str) -> None:
    """Raise `SourceAddressConflict` if another address is recorded for the data of `source`.

    The row stays locked for reading until the commit, so the address cannot change.
    """
    place = collection_places.c
    present = tx.execute(select(place.address).where(place.source == source).with_for_update(read=True)).scalar()
    if present is not None and present != _normal(address):
        raise SourceAddressConflict(source, present, _normal(address))


def matching_addresses(tx: Transaction, source: str, addresses: Iterable[str]) -> list[str]:
    """Return those of `addresses` that match the recorded address of `source`; all of them if none is recorded."""
    present = tx.execute(select(collection_places.c.address).where(collection_places.c.source == source)).scalar()
    return [address for address in addresses if present is None or _normal(address) == present]


def _row(source: str, address: str) -> dict[str, str]:
    return {"source": require_name("source", source), "address": address}


def _normal(address: str) -> str:
    """Normalize an address: scheme and host in lower case, no trailing slash."""
    if len(address) > _LONGEST:
        raise InvalidArgument("address", address[:32] + "…", f"must have at most {_LONGEST} characters")
    parts = urlsplit(address)
    return urlunsplit((parts.scheme.lower(), parts.netloc.lower(), parts.path.rstrip("/"), "", ""))
