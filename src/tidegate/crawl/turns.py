"""One at a time, in SQL: whoever applies answers holds a row until his commit.

The leader is one process, but a frozen one may wake up after another was elected. Two that apply different answers to
the same product would each go by what it was before. With their turns taken, the second sees what the first did.
"""

from sqlalchemy import select

from tidegate.crawl.tables import crawl_turns
from tidegate.database import Transaction

_APPLYING = "applying"


def take_turn(tx: Transaction) -> None:
    """Wait until nobody else applies answers, and keep others from it until the commit. SQLite has one writer."""
    if tx.dialect == "sqlite":
        return
    locked = select(crawl_turns.c.name).where(crawl_turns.c.name == _APPLYING).with_for_update()
    while tx.execute(locked).first() is None:
        tx.execute(tx.insert_if_absent(crawl_turns), [{"name": _APPLYING}])
