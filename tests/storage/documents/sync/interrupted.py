"""`-m tests.storage.documents.sync.interrupted MOMENT ARGUMENTS…`: `tidegate sync` that stops at MOMENT."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

from tidegate.app.cli import main
from tidegate.storage.documents.sync import synchronizer
from tidegate.storage.documents.sync.duckdb_file import DuckdbTable


def stop_after_some_rows(moment: str) -> None:
    """Rows are committed or in a partial file; others are not read yet."""
    synchronizer._ROWS_AT_ONCE = 500  # pyright: ignore[reportPrivateUsage]
    synchronizer._READ_AT_ONCE = 250  # pyright: ignore[reportPrivateUsage]
    pages = synchronizer._pages  # pyright: ignore[reportPrivateUsage]

    async def slowly(*arguments: Any) -> Any:
        number = 0
        async for page in pages(*arguments):
            yield page
            number += 1
            if number == 9:
                print(moment, flush=True)
                await asyncio.Event().wait()

    synchronizer._pages = slowly  # pyright: ignore[reportPrivateUsage]


def stop_before_commit(moment: str) -> None:
    """All statements of a DuckDB transaction were executed."""
    transaction = DuckdbTable._transaction  # pyright: ignore[reportPrivateUsage]

    def stopping(self: DuckdbTable) -> Any:
        manager = transaction(self)
        leave = manager.__exit__
        count = 0

        class Stopping:
            def __enter__(self) -> Any:
                return manager.__enter__()

            def __exit__(self, *error: Any) -> Any:
                nonlocal count
                print(moment, flush=True)
                signal.pause()
                return leave(*error)

        return Stopping()

    async def prepared(self: DuckdbTable, *arguments: Any, **options: Any) -> int:
        DuckdbTable._transaction = stopping  # pyright: ignore[reportPrivateUsage]
        return await write(self, *arguments, **options)

    write, DuckdbTable.write = DuckdbTable.write, prepared


def stop_before_rename(moment: str) -> None:
    """The new file is complete, under its partial name."""

    def stop(self: Path, target: Any) -> Path:
        print(moment, flush=True)
        signal.pause()
        return self

    Path.replace = stop


MOMENTS = {"rows": stop_after_some_rows, "commit": stop_before_commit, "rename": stop_before_rename}

if __name__ == "__main__":
    moment = sys.argv.pop(1)
    MOMENTS[moment](moment)
    main()
