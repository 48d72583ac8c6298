"""SQL, the truth: transactions as functions, the schema and its migrations, the outbox."""

from tidegate.database.engine import Database
from tidegate.database.transaction import Transaction

__all__ = ["Database", "Transaction"]
