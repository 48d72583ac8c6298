"""What comes out is what is in the store, in an order that is always the same."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.storage.documents.export.reading import entry_of, read_rows, verify
from tests.storage.documents.harness import StoreHarness, issue
from tidegate.core.errors import InvalidArgument
from tidegate.storage.documents import Document, Listing
from tidegate.storage.documents.export.columns import (
    EACH,
    Column,
    number_in_link,
    present,
    text,
    texts,
    time,
    truth,
    whole,
)
from tidegate.storage.documents.export.exporter import ExportProgress, ExportRequest, export
from tidegate.storage.documents.export.formats import Format

FORMATS = list(Format)
FIELDS: list[Column] = [
    text("title"),
    whole("number_of_it", "number"),
    truth("open"),
    time("closed_at"),
    texts("labels", "labels", EACH, "name"),
    text("author", "user", "login"),
    present("is_pull", "pull_request"),
    number_in_link("issue", "issue_url"),
]


def wish(form: Format, **changes: Any) -> ExportRequest:
    options: dict[str, Any] = {"format": form, "kinds": {"issue": FIELDS, "pull": ()}, **changes}
    return ExportRequest(**options)


def document(number: str, /, *, kind: str = "issue", owner: str = "ada", **body: Any) -> Document:
    return Document.of(kind, number, owner=owner, resource=f"repo:{owner}/hello", body=body)


FULL: dict[str, Any] = {
    "title": 'He said: "one,\r\ntwo"',
    "number": 7,
    "open": False,
    "closed_at": "2026-03-04T05:06:07+02:00",
    "labels": [{"name": "bug"}, {"name": 'a "b", c'}],
    "user": {"login": "grace"},
    "pull_request": {},
    "issue_url": "https://example.org/issues/42",
}


@pytest.mark.every_server
@pytest.mark.parametrize("form", FORMATS)
async def test_every_document_is_in_the_file_of_its_kind_as_stored(harness: StoreHarness, tmp_path: Path, form: Format):
    await harness.write(
        document("2", **FULL), document("1"), document("10", owner="bob"), document("1", kind="pull", n=1)
    )
    harness.clock.advance(timedelta(seconds=1.5))
    await harness.write(issue("9", sweep=3), completed=[Listing("issue", "repo:octocat/hello", 4)])

    manifest = await export(harness.store, tmp_path / "out", wish(form, with_gone=True), clock=harness.clock)

    assert [(each.kind, each.documents) for each in manifest.files] == [("issue", 4), ("pull", 1)]
    assert verify(tmp_path / "out") == json.loads(msgspec.json.encode(manifest))
    rows = read_rows(tmp_path / "out", "issue")
    assert [row["id"] for row in rows] == ["1", "10", "2", "9"]
    for row in rows:
        stored = await harness.get(row["id"])
        names = ("id", "owner", "resource", "version", "created_at", "changed_at", "gone_at", "body")
        assert {name: row[name] for name in names} == {name: getattr(stored, name) for name in names}
    assert rows[3]["gone_at"] == harness.clock.now()


@pytest.mark.parametrize("form", [Format.PARQUET, Format.CSV])
async def test_columns_have_their_types(local: StoreHarness, tmp_path: Path, form: Format):
    await local.write(document("1", **FULL), document("2", title="", labels=[], user=None), document("3"))

    await export(local.store, tmp_path / "out", wish(form))

    full, empty, missing = (
        {name: row[name] for name in [field.name for field in FIELDS]} for row in read_rows(tmp_path / "out", "issue")
    )
    assert full.pop("closed_at").isoformat() == "2026-03-04T03:06:07+00:00"
    assert full == {
        "title": FULL["title"],
        "number_of_it": 7,
        "open": False,
        "labels": ["bug", 'a "b", c'],
        "author": "grace",
        "is_pull": True,
        "issue": 42,
    }
    assert (empty["title"], empty["labels"], empty["author"]) == ("", [], None), "empty is not the same as missing"
    assert set(missing.values()) == {None, False}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("title", 5),
        ("number", "5"),
        ("number", 5.0),
        ("number", 2**70),
        ("number", True),
        ("open", 0),
        ("closed_at", "yesterday"),
        ("closed_at", "2026-03-04T05:06:07"),
        ("closed_at", 1_700_000_000),
        ("labels", ["bug"]),
        ("labels", [{"name": None}]),
        ("labels", {"name": "bug"}),
        ("user", "grace"),
        ("issue_url", "https://example.org/issues/"),
        ("issue_url", "https://example.org/issues/٣"),
    ],
)
async def test_a_value_that_does_not_fit_its_column_is_null_counted_and_in_the_body(
    local: StoreHarness, tmp_path: Path, field: str, value: Any
):
    await local.write(document("1", **FULL), document("2", **{**FULL, field: value}))
    names = {"number": "number_of_it", "user": "author", "issue_url": "issue"}
    name = names.get(field, field)

    for form in (Format.PARQUET, Format.CSV):
        await export(local.store, tmp_path / form, wish(form))

        fits, misfit = read_rows(tmp_path / form, "issue")
        assert misfit[name] is None
        assert {key: value for key, value in fits.items() if key not in (name, "id", "body")} == {
            key: value for key, value in misfit.items() if key not in (name, "id", "body")
        }
        assert misfit["body"][field] == value
        assert entry_of(tmp_path / form, "issue")["misfits"] == {name: 1}


@pytest.mark.parametrize("form", FORMATS)
async def test_bodies_are_exported_as_the_upstream_sent_them(local: StoreHarness, tmp_path: Path, form: Format):
    """With line breaks between the words, and one that no reader reads."""
    raw = [
        b'{"title":\r\n "a\\nb",\n "n": 1}',
        b'{"title": "\\ud800 alone"}',
        b'{"d": ' + b"[" * 600 + b"]" * 600 + b"}",
    ]
    await local.write(
        *(
            Document.of("issue", str(number), owner="o", resource="r", body=msgspec.Raw(body))
            for number, body in enumerate(raw)
        )
    )

    await export(local.store, tmp_path / "out", wish(form))

    path = tmp_path / "out" / f"issue.{form}"
    assert entry_of(tmp_path / "out", "issue")["unreadable"] == 1
    if form is Format.JSONL:
        lines = path.read_bytes().split(b"\n")
        assert lines.pop() == b""
        found = [json.loads(line) for line in lines]
        assert found[0]["body"] == {"title": "a\nb", "n": 1}
        assert "unreadable" not in found[0]
        assert (found[1]["body"], found[1]["unreadable"]) == (None, raw[1].decode())
    else:
        assert b"alone" in path.read_bytes() or form is Format.PARQUET
        rows = read_rows(tmp_path / "out", "issue")
        assert rows[0]["title"] == "a\nb"
        assert rows[1]["title"] is None


@pytest.mark.every_server
async def test_an_export_can_be_limited_to_kinds_and_owners(harness: StoreHarness, tmp_path: Path):
    await harness.write(*(document(f"{n}", owner=f"user{n % 4}") for n in range(12)), document("1", kind="pull"))

    manifest = await export(
        harness.store,
        tmp_path / "out",
        wish(Format.CSV, kinds={"issue": ()}, owners=["user3", "user1", "nobody", "user3"]),
    )

    assert manifest.owners == ["nobody", "user1", "user3"]
    assert [row["id"] for row in read_rows(tmp_path / "out", "issue")] == ["1", "5", "9", "11", "3", "7"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["issue.csv", "manifest.json"]


@pytest.mark.every_server
@pytest.mark.parametrize("with_gone", [True, False])
async def test_documents_that_are_gone_upstream_are_exported_only_on_request(
    harness: StoreHarness, tmp_path: Path, with_gone: bool
):
    await harness.write(*(issue(each, sweep=1) for each in "abc"))
    await harness.write(issue("b", sweep=2), completed=[Listing("issue", "repo:octocat/hello", 2)])

    await export(harness.store, tmp_path / "out", wish(Format.JSONL, with_gone=with_gone))

    assert [row["id"] for row in read_rows(tmp_path / "out", "issue")] == (["a", "b", "c"] if with_gone else ["b"])


@pytest.mark.parametrize("form", [Format.PARQUET, Format.CSV])
async def test_the_body_can_be_left_out(local: StoreHarness, tmp_path: Path, form: Format):
    await local.write(document("1", **FULL))

    await export(local.store, tmp_path / "out", wish(form, with_body=False))

    [row] = read_rows(tmp_path / "out", "issue")
    assert "body" not in row
    assert row["title"] == FULL["title"]


def test_json_lines_without_bodies_are_refused():
    with pytest.raises(InvalidArgument, match="csv or parquet"):
        wish(Format.JSONL, with_body=False)


def test_an_export_without_kinds_is_refused():
    with pytest.raises(InvalidArgument, match="nothing to export"):
        wish(Format.CSV, kinds={})


@pytest.mark.parametrize("name", ["id", "created_at", "body", "title"])
async def test_duplicate_column_names_are_refused(local: StoreHarness, tmp_path: Path, name: str):
    with pytest.raises(InvalidArgument, match="two of that name"):
        await export(local.store, tmp_path / "out", wish(Format.CSV, kinds={"issue": [text("title"), whole(name)]}))

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", FORMATS)
async def test_a_kind_without_documents_is_an_empty_file_with_its_columns(
    local: StoreHarness, tmp_path: Path, form: Format
):
    await export(local.store, tmp_path / "out", wish(form))

    assert read_rows(tmp_path / "out", "issue") == []
    assert verify(tmp_path / "out")["documents"] == 0


@pytest.mark.parametrize("form", FORMATS)
async def test_the_same_documents_make_the_same_files(local: StoreHarness, tmp_path: Path, form: Format):
    await local.write(*(document(str(n), title=f"t{n}") for n in range(1300)))

    one = await export(local.store, tmp_path / "one", wish(form))
    other = await export(local.store, tmp_path / "other", wish(form))

    assert [each.sha256 for each in one.files] == [each.sha256 for each in other.files]


async def test_progress_is_reported(local: StoreHarness, tmp_path: Path):
    await local.write(*(document(f"{n:04}") for n in range(1100)))
    told: list[ExportProgress] = []

    await export(local.store, tmp_path / "out", wish(Format.CSV), on_progress=told.append)

    issues = [(each.written, each.total) for each in told if each.kind == "issue"]
    assert issues == [(0, 1100), (500, 1100), (1000, 1100), (1100, 1100)]
    assert [each.written for each in told if each.kind == "pull"] == [0]
