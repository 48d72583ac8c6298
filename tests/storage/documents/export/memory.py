"""`-m tests.storage.documents.export.memory FORMAT`: export generated documents, and print how much memory grew."""

import asyncio
import resource
import sys
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from tidegate.storage.documents import DocumentStore, StoredDocument
from tidegate.storage.documents.export.columns import text, whole
from tidegate.storage.documents.export.exporter import ExportRequest, export
from tidegate.storage.documents.export.formats import Format

COUNT = 60_000
SIZE = 4_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Spring:
    """A store that never runs dry, and holds nothing."""

    name, source = "spring", "spring"

    async def count(self, *_: Any, **__: Any) -> int:
        return COUNT

    async def iterate(self, kind: str, *_: Any, **__: Any) -> AsyncIterator[StoredDocument]:
        for number in range(COUNT):
            filling = f"{number:010}" * (SIZE // 10)
            yield StoredDocument(
                kind=kind,
                id=f"{number:08}",
                owner="ada",
                resource="repo:ada/hello",
                version=None,
                text=f'{{"title": "t{number}", "number": {number}, "filling": "{filling}"}}',
                created_at=NOW,
                changed_at=NOW,
                gone_at=None,
                fingerprint=1,
            )


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def main(form: Format) -> None:
    wish = ExportRequest(format=form, kinds={"issue": [text("title"), whole("number")]})
    before = peak_mb()
    with tempfile.TemporaryDirectory() as folder:
        manifest = await export(cast("DocumentStore", Spring()), Path(folder) / "out", wish)
    print(manifest.documents, round(peak_mb() - before))


asyncio.run(main(Format(sys.argv[1])))
