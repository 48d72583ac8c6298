"""One at a time, in SQL: whoever applies answers holds a row until his commit.

The leader is one process, but a frozen one may wake up after another was elected. Two that apply different answers to
the same product would each go by what it was before. With their turns taken, the second sees what the first did.
"""

from tidegate.storage.sql import Transaction
from tidegate.systems.crawl.tables import crawl_turns

_APPLYING = "applying"


def take_turn(tx: Transaction) -> None:
    """Wait until nobody else applies answers, and keep others from it until the commit. SQLite has one writer."""
    if tx.dialect != "sqlite":
        tx.insert_or_lock(crawl_turns, {"name": _APPLYING}, key="name")
