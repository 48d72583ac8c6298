"""What the two kinds of engine have in common: one attempt at a unit of work."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

from sqlalchemy import Connection

from tidegate.storage.sql.transaction import Transaction
from tidegate.storage.sql.urls import Dialect

Result = TypeVar("Result")


@dataclass(frozen=True)
class Attempt(Generic[Result]):
    """A function to run in one transaction, and the future that receives its result."""

    work: Callable[[Transaction], Result]
    now: datetime
    writes: bool
    timeout: timedelta
    committed: Callable[[Transaction], None]
    """Called on the event loop as soon as the commit is known to have happened."""
    fate_unknown: Callable[[Transaction], None]
    """Called on the event loop when the connection broke during the commit."""

    def begin(self, connection: Connection, dialect: Dialect) -> Transaction:
        """A fresh transaction for this attempt."""
        return Transaction(connection, dialect, now=self.now, read_only=not self.writes)

    def run(self, tx: Transaction) -> Result:
        """Run the function; afterwards the transaction cannot be used any more."""
        try:
            return self.work(tx)
        finally:
            tx.end()


class Backend(Protocol):
    """Runs attempts. Errors come out as the driver raised them; `faults` knows what they mean."""

    async def prepare(self) -> None:
        """Make the database ready for attempts, once, when it is opened."""
        ...

    async def attempt(self, attempt: Attempt[Result]) -> Result:
        """Run the function in one transaction, and commit it; a read is rolled back.

        A caller that is cancelled before the commit began causes a rollback. After that the commit is finished, and
        told, in any case. Raises `CommitUnknown` when the connection broke during the commit.
        """
        ...

    async def close(self) -> None:
        """Let go of all connections and threads. No attempt is running any more."""
        ...
