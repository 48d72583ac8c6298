"""A lock in SQL for applying answers, held until the commit.

The leader is one process, but a frozen one can resume after another was elected. If both applied different answers to
one product, each would start from the same old state. With the lock, the second one sees the changes of the first.
"""

from tidegate.storage.sql import Transaction
from tidegate.systems.crawl.tables import crawl_turns

_APPLYING = "applying"


def lock_processing(tx: Transaction) -> None:
    """Take the lock until the commit, waiting for its holder. SQLite has only one writer anyway."""
    if tx.dialect != "sqlite":
        tx.insert_or_lock(crawl_turns, {"name": _APPLYING}, key="name")
