"""A process that writes documents and stops before its transaction ends, until it is killed."""

import asyncio
import sys

from tests.storage.documents.harness import issue
from tidegate.storage.documents import DocumentSettings, Staged, open_documents
from tidegate.storage.sql import Database, Transaction


async def main(url: str, mongo_url: str | None) -> None:
    async with await Database.open(url) as database:
        store = (await open_documents(DocumentSettings(url=mongo_url), database)).of("github")
        staged = await store.stage([issue(each, version=1) for each in "abc"])
        await database.transaction(apply_and_stop, staged)


def apply_and_stop(tx: Transaction, staged: Staged) -> None:
    staged.apply(tx)
    print("applied", flush=True)
    sys.stdin.read()


asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
