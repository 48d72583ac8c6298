"""Interface of document stores.

Documents are namespaced by source: `Documents.of("github")` is the store of one source, and operations on it never
affect documents of another source. A write is planned around the transaction that ends its jobs:

    store = documents.of("github")
    staged = await store.stage(given, completed=[Listing(...)])       # before it
    await database.transaction(lambda tx: staged.apply(tx))           # in it, with everything else

The SQL store writes in `apply`: documents and jobs are committed together. MongoDB cannot take part in the transaction,
so it writes in `stage`. If the transaction then fails, the job is repeated and writes the same documents again, which
changes nothing.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import msgspec

from tidegate.core.arguments import require_positive
from tidegate.storage.documents.document import Document, StoredDocument, require_kind
from tidegate.storage.sql import Transaction


class Listing(msgspec.Struct, frozen=True):
    """A list of the upstream that was read from its beginning to its end, in the run numbered `sweep`.

    Documents of this kind and resource that no run from `sweep` on has seen are missing upstream: deleted, or moved
    elsewhere. They are marked with the time, and stay. For this every document of such a list carries the number of
    its run, also in runs that read only what is new. A late, older listing marks nothing that was seen since.
    """

    kind: str
    resource: str
    sweep: int

    def __post_init__(self) -> None:
        require_kind(self.kind)
        require_positive("sweep", self.sweep)


class Written(msgspec.Struct, frozen=True):
    """Result of a write."""

    changed: int
    """Documents that are new, different, or back after they were missing."""
    gone: int
    """Documents that were found to be missing."""


class ChangeDigest(msgspec.Struct, frozen=True):
    """The documents of a kind that last changed at one moment, gone ones included.

    Two stores with equal moments have the same documents: each document counts at one moment, and a change moves
    it to another moment or changes its fingerprint. The result does not depend on clocks or commits. Sums of
    different sets are equal with a probability of about 2^-39.
    """

    at: datetime
    documents: int
    fingerprint: int
    """The sum of their fingerprints."""


class WriteAction(StrEnum):
    """Decision of a rule about a stored document."""

    SKIP = "skip"
    WRITE = "write"  # store it, whatever was there
    REMOVE = "remove"  # mark it as gone; a document that is not there is stored as gone


class ConditionalWrite(msgspec.Struct, frozen=True):
    """A document and the rule that decides on it, for changes that an upstream reports outside of its lists.

    Such a change can arrive late, twice or in the wrong order, so each kind of change has a rule of its own:

        ConditionalWrite(document, lambda old: Action.WRITE if old is None else Action.SKIP)     # only if it is new

    Applying the same write again must change nothing: a rule returns `SKIP` for the state that it brought about.
    """

    document: Document
    """Its `sweep` is stored unless the present one is higher."""
    decide: Callable[[StoredDocument | None], WriteAction]
    """Called with the stored document, gone or not; perhaps repeatedly."""


class Staged(Protocol):
    """A prepared write; `apply` writes it in a transaction."""

    def apply(self, tx: Transaction) -> Written:
        """Write the documents, if `stage` has not done it. It is repeated with its transaction."""
        ...


class Documents(Protocol):
    """The documents of all sources."""

    @property
    def name(self) -> str:
        """The address of the server, without secrets."""
        ...

    def of(self, source: str) -> "DocumentStore":
        """The documents of one source."""
        ...

    async def close(self) -> None:
        """Close the connections that belong to the store."""
        ...


class DocumentStore(Protocol):
    """Documents of one source, by kind and id. Writing the same document again changes nothing."""

    @property
    def name(self) -> str:
        """The address of the store, without secrets."""
        ...

    @property
    def source(self) -> str:
        """The source of the documents."""
        ...

    async def stage(self, documents: Iterable[Document], *, completed: Sequence[Listing] = ()) -> Staged:
        """Prepare a write of `documents`, and of what is missing from lists that are `completed` with them.

        Of several with one key the last counts, unless it is older. Raises `Unavailable` when the store cannot be
        reached; then nothing, or a part, was written, and trying again is right.
        """
        ...

    async def stage_conditional(
        self, writes: Iterable[ConditionalWrite], *, completed: Sequence[Listing] = ()
    ) -> Staged:
        """The same for documents that are written depending on what is stored; of several with one key the last counts.

        The document is locked, or checked for changes, between the decision and the write.
        """
        ...

    async def kinds(self) -> Sequence[str]:
        """Return the kinds of stored documents, including documents that are gone, in alphabetical order."""
        ...

    async def get(self, kind: str, id: str) -> StoredDocument | None:  # noqa: A002
        """Return a document, also if it is gone upstream; None if it was never stored."""
        ...

    async def count(self, kind: str, owner: str | None = None, *, with_gone: bool = False) -> int:
        """Return the number of documents, of one owner or of all."""
        ...

    async def changes(self, kind: str, owner: str) -> Mapping[datetime, int]:
        """How many documents of an owner last changed at each moment; those that are gone are left out.

        Compare it with the counts stored beside a copy to find what the copy lacks or has too much. A document that was
        added, changed, marked as gone or moved to another owner changes the count of some time, even if the writer's
        clock was behind or its commit was late. Read the times that differ with `iterate`.
        """
        ...

    async def moments(self, kind: str, *, after: datetime | None = None, limit: int = 10_000) -> Sequence[ChangeDigest]:
        """The moments after `after` at which documents of a kind last changed, in their order, at most `limit`.

        A copy that keeps `changed_at` and `fingerprint` of each document finds by comparison what it lacks, and reads
        that with `iterate_changes`.
        """
        ...

    def iterate_changes(
        self, kind: str, first: datetime, last: datetime, *, batch: int = 2000
    ) -> AsyncIterator[StoredDocument]:
        """Documents that last changed from `first` to `last`, in the order of that time and their ids; also gone ones.

        They are read `batch` at a time. A document that changes meanwhile may be left out or told again.
        """
        ...

    def iterate(
        self,
        kind: str,
        owner: str | None = None,
        *,
        with_gone: bool = False,
        changed_at: Collection[datetime] | None = None,
        batch: int = 500,
    ) -> AsyncIterator[StoredDocument]:
        """All of them in the order of their ids, or those that last changed at some moments; read `batch` at a time.

        Each batch sees what is there when it is read: what is written meanwhile may be in or not, but nothing that was
        there all the time is left out or told twice.
        """
        ...


class StoredVersion(msgspec.Struct, frozen=True):
    """Fields of a stored document that decide on a write."""

    hash: str
    version: str | None
    sweep: int
    owner: str
    is_gone: bool


def is_taken(old: StoredVersion, new: Document) -> bool:
    """Whether `new` replaces `old`. The SQL statements of some servers implement the same rule.

    An older version never replaces a newer one, and equal content changes nothing. A document that was marked as gone
    comes back only by a write outside of runs, by a later run than the one that missed it, or for another owner. Run
    numbers order the runs of one owner, which has one at a time. Runs of two owners overlap: an item that moved from
    one owner to the other may be missed by the later run of the first before the earlier run of the second finds it.
    """
    if is_older(new.version, old.version):
        return False
    if old.is_gone:
        return new.sweep == 0 or new.sweep > old.sweep or new.owner != old.owner
    return new.hash != old.hash


def is_older(version: str | None, than: str | None) -> bool:
    """Whether a version is older. Without a version on either side, neither is."""
    return version is not None and than is not None and version < than


def one_per_key(documents: Iterable[Document]) -> list[Document]:
    """The last of each key, unless it is older, in the order of their keys: two writers then meet in one order."""
    chosen: dict[tuple[str, str], Document] = {}
    for document in documents:
        before = chosen.get(document.key)
        if before is None:
            chosen[document.key] = document
        else:
            winner = before if is_older(document.version, before.version) else document
            # The item was seen in the later run, whichever content is kept.
            sweep = max(before.sweep, document.sweep)
            chosen[document.key] = winner if winner.sweep == sweep else msgspec.structs.replace(winner, sweep=sweep)
    return [chosen[key] for key in sorted(chosen)]


def last_per_key(writes: Iterable[ConditionalWrite]) -> list[ConditionalWrite]:
    """The last of each key, in the order of their keys: two writers then lock in one order."""
    chosen = {each.document.key: each for each in writes}
    return [chosen[key] for key in sorted(chosen)]
