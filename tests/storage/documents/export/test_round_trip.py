"""Whatever a document says, each form brings it back."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from tests.examples import examples
from tests.storage.documents.export.reading import read_rows, verify
from tests.storage.documents.harness import StoreHarness, open_harness
from tidegate.storage.documents import Document
from tidegate.storage.documents.export.columns import EACH, Column, text, texts, truth, whole
from tidegate.storage.documents.export.exporter import ExportRequest, export
from tidegate.storage.documents.export.formats import Format
from tidegate.storage.documents.statements import documents as table

NASTY = st.sampled_from(
    ["", '"', '""', "\n", "\r\n", "\r", ",", "\0", "\u2028", "=1+1", "null", "🌊", "\x85", "\\", " a "]
)
TEXTS = st.lists(st.text(max_size=8) | NASTY, max_size=4).map("".join)
OPTIONAL = st.none() | TEXTS
IDS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=12)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "title": OPTIONAL,
        "number": st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
        "open": st.none() | st.booleans(),
        "labels": st.none() | st.lists(st.fixed_dictionaries({"name": TEXTS}), max_size=3),
        "other": st.recursive(st.none() | TEXTS | st.integers(-5, 5), lambda inner: st.lists(inner, max_size=3)),
    },
)
FIELDS: list[Column] = [text("title"), whole("number"), truth("open"), texts("labels", "labels", EACH, "name")]


async def exported(harness: StoreHarness, folder: Path, found: dict[str, dict[str, Any]]) -> None:
    await harness.database.transaction(lambda tx: tx.execute(delete(table)))
    await harness.write(*(Document.of("item", id_, owner="o", resource="r", body=body) for id_, body in found.items()))
    for form in Format:
        await export(harness.store, folder / form, ExportRequest(format=form, kinds={"item": FIELDS}))


def test_exported_documents_equal_the_stored_ones(tmp_path: Path):
    with asyncio.Runner() as runner:
        opening = open_harness("sqlite", tmp_path)
        harness = runner.run(opening.__aenter__())

        @settings(max_examples=examples(25), deadline=None)
        @given(found=st.dictionaries(IDS, BODIES, max_size=6))
        def holds(found: dict[str, dict[str, Any]]) -> None:
            with tempfile.TemporaryDirectory(dir=tmp_path) as name:
                folder = Path(name)
                runner.run(exported(harness, folder, found))
                for form in Format:
                    verify(folder / form)
                    rows = read_rows(folder / form, "item")
                    assert [(row["id"], row["body"]) for row in rows] == sorted(found.items())
                    if form is Format.JSONL:
                        continue
                    for row in rows:
                        body = found[row["id"]]
                        assert (row["title"], row["number"], row["open"]) == (
                            *(body.get("title"), body.get("number"), body.get("open")),
                        )
                        labels = body.get("labels")
                        assert row["labels"] == (None if labels is None else [each["name"] for each in labels])

        try:
            holds()
        finally:
            runner.run(opening.__aexit__(None, None, None))
