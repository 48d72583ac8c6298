"""A writer that is killed leaves nothing that repeating the job would not put right."""

import asyncio
import sys

import pytest

from tests.processes import start_warm
from tests.storage.documents.harness import StoreHarness, issue


@pytest.mark.smoke
@pytest.mark.crash
async def test_a_writer_killed_before_its_commit_leaves_nothing_partial(harness: StoreHarness) -> None:
    pipe = asyncio.subprocess.PIPE
    urls = [harness.url] if harness.mongo_url is None else [harness.url, harness.mongo_url]
    writer = await start_warm(
        sys.executable, "-m", "tests.storage.documents.interrupted", *urls, stdin=pipe, stdout=pipe
    )
    assert writer.stdout
    assert await writer.stdout.readline() == b"applied\n"
    writer.kill()
    await writer.communicate()

    # The SQL stores have nothing, since nothing was committed; MongoDB has all of it already.
    there = 0 if harness.mongo_url is None else 3
    assert await harness.changed(*(issue(each, version=1) for each in "abc")) == 3 - there
    assert await harness.ids() == ["a", "b", "c"]
    assert await harness.changed(*(issue(each, version=1) for each in "abc")) == 0
