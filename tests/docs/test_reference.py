"""The pages of docs/reference say what the code says: `make reference` writes them."""

import re
from pathlib import Path

import pytest
from reference.events import OUTBOX_KINDS, describe_events
from reference.operations import describe_operations
from reference.pages import FOLDER, PAGES
from reference.server import EVERYTHING, document_at

from tests.docs.pages import ROOT, anchors_of, prose_of
from tests.http.processes import started
from tidegate.engine.run_counters import RUN_ENDED

OUTDATED = "it is not what the code says any more: run `make reference`"
OF_THE_SERVER = {"http", "events"}
GENERATED = [FOLDER / f"{name}.md" for name in PAGES]


@pytest.mark.parametrize("name", sorted(PAGES.keys() - OF_THE_SERVER))
async def test_a_page_is_current(name: str):
    assert (FOLDER / f"{name}.md").read_text() == await PAGES[name](), OUTDATED


async def test_the_openapi_document_is_current(tmp_path: Path):
    async with started(tmp_path, "serve", "--port", "0", **EVERYTHING) as server:
        document = await document_at(server.url)

    assert (FOLDER / "http.md").read_text() == describe_operations(document), OUTDATED
    assert (FOLDER / "events.md").read_text() == describe_events(document), OUTDATED


def test_documented_event_kinds_equal_those_added_by_the_code():
    source = ROOT / "src" / "tidegate"
    added = [
        name
        for module in source.rglob("*.py")
        if module.name != "outbox.py"
        for name in re.findall(r"outbox\.add\(\s*tx,\s*Event\(\s*(\w+)", module.read_text())
    ]

    assert added == ["run_ended"]
    assert [row[0] for row in OUTBOX_KINDS] == [f"`{RUN_ENDED}.<source>`"]


def test_the_index_lists_every_page_of_the_folder():
    index = (FOLDER / "README.md").read_text()

    assert [
        page.name for page in FOLDER.glob("*.md") if page.name != "README.md" and f"({page.name})" not in index
    ] == []
    assert {page.stem for page in FOLDER.glob("*.md")} == {"README", *PAGES}


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: page.stem)
def test_heading_anchors_are_unique(page: Path):
    headings = re.findall(r"^#{1,6} +(.+)$", prose_of(page), re.MULTILINE)

    assert len(headings) == len(anchors_of(page))
