"""`-m tests.storage.documents.export.interrupted MOMENT ARGUMENTS…`: `tidegate export` that stops at MOMENT."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tidegate.app.cli import main
from tidegate.storage.documents.sql import SqlDocumentStore, StoredDocument


def stop_in_the_middle_of_a_file(moment: str) -> None:
    iterate = SqlDocumentStore.iterate

    async def slowly(*arguments: Any, **options: Any) -> AsyncIterator[StoredDocument]:
        count = 0
        async for document in iterate(*arguments, **options):
            yield document
            count += 1
            if count == 1500:
                print(moment, flush=True)
                await asyncio.Event().wait()

    SqlDocumentStore.iterate = slowly


def stop_between_two_names(moment: str) -> None:
    """The first is the manifest that says what is to come, the second and third are files."""
    replace, count = Path.replace, 0

    def replace_some(self: Path, target: Any) -> Path:
        nonlocal count
        count += 1
        if count == 3:
            print(moment, flush=True)
            signal.pause()
        return replace(self, target)

    Path.replace = replace_some


if __name__ == "__main__":
    moment = sys.argv.pop(1)
    {"file": stop_in_the_middle_of_a_file, "names": stop_between_two_names}[moment](moment)
    main()
