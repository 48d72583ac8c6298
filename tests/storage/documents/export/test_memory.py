"""Memory does not grow with the number of documents."""

import asyncio
import sys

import pytest

from tidegate.storage.documents.export.formats import Format

MOST_MB = 120
"""The documents together have 240 MB, and the library that writes Parquet takes some 50 for itself."""


@pytest.mark.full
@pytest.mark.parametrize("form", list(Format))
async def test_an_export_uses_memory_for_a_small_part_of_its_output(form: Format):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.storage.documents.export.memory", form, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()

    documents, grown_mb = map(int, out.split())
    assert documents == 60_000
    assert grown_mb < MOST_MB
