"""A process that commits events and relays them until it is killed.

Arguments: the database's URL, the first number, how many keys. Prints each number once its transaction committed.
"""

import asyncio
import sys

import structlog
from sqlalchemy import text

from tidegate.runtime.delivery import Handler
from tidegate.runtime.relay import Relay
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event


def commit(tx: Transaction, number: int, key: str) -> None:
    """The business fact and its event, in one transaction."""
    tx.execute(text("INSERT INTO facts (n) VALUES (:n)"), {"n": number})
    outbox.add(tx, Event("counted", key, number))


def apply(tx: Transaction, event: Event) -> None:
    """The effect, once. Applying it twice would be visible: nothing makes `effects` unique."""
    if outbox.once(tx, "counter", event.event_id):
        place = text("SELECT COUNT(*) FROM effects WHERE k = :k")
        position = tx.execute(place, {"k": event.key}).scalar_one()
        effect = {"k": event.key, "position": position, "n": event.payload}
        tx.execute(text("INSERT INTO effects (k, position, n) VALUES (:k, :position, :n)"), effect)


def handler(database: Database) -> Handler:
    async def handle(event: Event) -> None:
        await database.transaction(apply, event)

    return Handler("counted", "counter", handle)


async def main(url: str, first: int, keys: int) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    async with await Database.open(url) as database:
        relay = asyncio.create_task(Relay(database, [handler(database)]).run(asyncio.Event()))
        number = first
        while not relay.done():
            await database.transaction(commit, number, f"key {number % keys}")
            print(number, flush=True)
            number += 1


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
