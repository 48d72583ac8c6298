"""After a sync every destination has the documents of the store, and only rows that changed were written."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.storage.documents.harness import StoreHarness, issue
from tests.storage.documents.sync.targets import FIELDS, Target, assert_equal, expected, open_target
from tidegate.core.errors import InvalidArgument
from tidegate.storage.documents import Listing
from tidegate.storage.documents.export.columns import text, texts, whole
from tidegate.storage.documents.sync.destination import SyncFailed, open_destination, parse_destination
from tidegate.storage.documents.sync.synchronizer import SyncOrder, sync

HELLO = "repo:octocat/hello"
HOUR = timedelta(hours=1)
FULL_BODY: dict[str, Any] = {
    "title": 'quotes " and \n lines, "commas" \u2028 \U0001f600',
    "user": {"login": "octocat", "id": 2**62},
    "locked": True,
    "closed_at": "2026-01-02T03:04:05.678901+02:00",
    "labels": [{"name": "bug", "color": "f00"}, {"name": ""}],
    "topics": [],
    "parent_url": "https://api.example/issues/42",
}


async def test_every_document_becomes_a_row_with_typed_columns(local: StoreHarness, target: Target) -> None:
    await local.write(issue("full", version="2026-01-01T00:00:00Z", **FULL_BODY), issue("empty", owner="hubot"))

    report = await target.sync(local.store)

    assert (report.written, report.tables[0].documents) == (2, 2)
    rows = await target.rows()
    assert rows == await expected(local.store)
    assert rows["full"]["user_id"] == 2**62
    assert rows["full"]["labels"] == ["bug", ""]
    assert rows["full"]["closed_at"].isoformat() == "2026-01-02T01:04:05.678901+00:00"
    assert rows["empty"]["locked"] is None


async def test_a_second_sync_writes_exactly_the_rows_that_changed(local: StoreHarness, target: Target) -> None:
    await local.write(*(issue(each, sweep=1) for each in "abcdef"))
    assert await target.written(local.store) == 6
    assert await target.written(local.store) == 0
    local.clock.advance(HOUR)
    await local.write(issue("a", title="new", sweep=2), *(issue(each, sweep=2) for each in "bcdeg"))

    assert await target.written(local.store) == 2
    await assert_equal(target, local)
    assert await target.written(local.store) == 0


async def test_documents_gone_upstream_are_marked_and_may_return(local: StoreHarness, target: Target) -> None:
    await local.write(issue("a", sweep=1), issue("b", sweep=1))
    await target.sync(local.store)
    local.clock.advance(HOUR)
    await local.write(issue("b", sweep=2), completed=[Listing("issue", HELLO, 2)])
    gone_at = local.clock.now()

    assert await target.written(local.store) == 1
    assert {name: row["_deleted_at"] for name, row in (await target.rows()).items()} == {"a": gone_at, "b": None}
    local.clock.advance(HOUR)
    await local.write(issue("a", sweep=3))
    assert await target.written(local.store) == 1
    await assert_equal(target, local)


async def test_a_commit_under_an_earlier_time_is_copied(local: StoreHarness, target: Target) -> None:
    """The clock of its process was behind, or its transaction began long before it was committed."""
    await local.write(issue("a"))
    await target.sync(local.store)
    local.clock.advance(-HOUR)
    await local.write(issue("b"))

    assert await target.written(local.store) == 1
    await assert_equal(target, local)


async def test_changes_under_the_same_time_are_copied(local: StoreHarness, target: Target) -> None:
    await local.write(issue("a", sweep=1), issue("b", sweep=1))
    await target.sync(local.store)
    await local.write(issue("a", title="new", sweep=2), completed=[Listing("issue", HELLO, 2)])

    await target.sync(local.store)
    await assert_equal(target, local)


async def test_values_of_another_type_are_null_and_counted(local: StoreHarness, target: Target) -> None:
    await local.write(issue("a", title=1, user="nobody", closed_at="2026-01-01", labels=[{"name": None}], topics=["t"]))

    report = await target.sync(local.store)

    assert report.tables[0].misfits == {"closed_at": 1, "labels": 1, "login": 1, "title": 1, "user_id": 1}
    row = (await target.rows())["a"]
    assert (row["title"], row["labels"], row["topics"]) == (None, None, ["t"])


async def test_a_kind_without_columns_has_the_complete_document(local: StoreHarness, target: Target) -> None:
    await local.write(issue("a", kind="book", title="first"))
    await target.sync(local.store, {"book": ()})

    assert (await target.rows("book"))["a"]["body"] == '{"number":"a","title":"first"}'


async def test_a_declared_kind_without_documents_has_an_empty_table(local: StoreHarness, target: Target) -> None:
    report = await target.sync(local.store)

    assert await target.rows() == {}
    assert [(each.kind, each.written) for each in report.tables] == [("issue", 0)]


async def test_sources_have_separate_schemas(local: StoreHarness, target: Target) -> None:
    shop = local.beside("shop")
    await local.write(issue("a"))
    await shop.write(issue("a", title="of the shop"))
    await target.sync(local.store)
    await target.sync(shop.store)

    assert await target.rows() == await expected(local.store)
    assert await target.rows(source="shop") == await expected(shop.store)


async def test_a_new_column_is_added_and_filled_for_all_rows(local: StoreHarness, target: Target) -> None:
    await local.write(issue("a", points=1), issue("b", points=2))
    await target.sync(local.store)
    more = (*FIELDS, whole("points"), texts("tags"))

    assert await target.written(local.store, kinds={"issue": more}) == 2
    assert await target.rows() == await expected(local.store, fields=more)
    assert await target.written(local.store, kinds={"issue": more}) == 0


async def test_a_removed_column_does_not_stop_a_sync(local: StoreHarness, target: Target) -> None:
    await local.write(issue("a", title="first"))
    await target.sync(local.store)
    await local.write(issue("b"))

    assert await target.written(local.store, kinds={"issue": FIELDS[1:]}) == 1
    assert (await target.rows()).keys() == {"a", "b"}


async def test_a_column_of_another_type_is_refused_until_the_table_is_recreated(
    local: StoreHarness, target: Target
) -> None:
    if target.name == "jsonl":
        pytest.skip("JSON has no types of columns")
    await local.write(issue("a", title="12"))
    await target.sync(local.store)
    changed = {"issue": (whole("title"), *FIELDS[1:])}

    with pytest.raises(SyncFailed, match=r"the column title of .*--full"):
        await target.sync(local.store, changed)
    await assert_equal(target, local)
    await target.sync(local.store, changed, full=True)
    assert (await target.rows())["a"]["title"] is None


async def test_a_full_sync_writes_all_rows_and_removes_those_without_a_document(
    local: StoreHarness, target: Target
) -> None:
    await local.write(issue("a"), issue("b"))
    await target.sync(local.store)
    other = local.beside("github")
    await other.database.transaction(lambda tx: tx.execute_sql("DELETE FROM documents WHERE id = 'a'"))

    assert await target.written(local.store) == 0
    assert (await target.rows()).keys() == {"a", "b"}
    report = await target.sync(local.store, full=True)
    assert report.written == 1
    await assert_equal(target, local)


async def test_a_manually_changed_or_deleted_row_is_repaired(local: StoreHarness, tmp_path: Path) -> None:
    await local.write(*(issue(each) for each in "abc"))
    async with open_target("postgres", tmp_path) as target:
        await target.sync(local.store)
        await target.query("DELETE FROM github.issue WHERE id = 'a'")
        await target.query("UPDATE github.issue SET _fingerprint = 7 WHERE id = 'b'")

        assert await target.written(local.store) == 2
        await assert_equal(target, local)


async def test_a_dry_run_counts_and_writes_nothing(local: StoreHarness, target: Target, tmp_path: Path) -> None:
    await local.write(issue("a"), issue("b"))
    before = sorted(tmp_path.rglob("*"))

    assert (await target.sync(local.store, dry_run=True)).written == 2
    if target.name != "postgres":
        assert sorted(tmp_path.rglob("*")) == before
    await target.sync(local.store)
    local.clock.advance(HOUR)
    await local.write(issue("a", title="new"))
    rows = await target.rows()
    assert (await target.sync(local.store, dry_run=True)).written == 1
    assert (await target.sync(local.store, dry_run=True, full=True)).written == 2
    assert await target.rows() == rows


async def test_many_and_large_change_times_are_copied_page_by_page(
    local: StoreHarness, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_MOMENTS_AT_ONCE", 3), ("_READ_AT_ONCE", 4), ("_ROWS_AT_ONCE", 5)):
        monkeypatch.setattr(f"tidegate.storage.documents.sync.synchronizer.{name}", value)
    for batch in range(8):
        await local.write(*(issue(f"{batch}-{number}") for number in range(3 * batch)))
        local.clock.advance(HOUR)

    assert await target.written(local.store) == 84
    await assert_equal(target, local)
    await local.write(*(issue(f"7-{number}", title="new") for number in range(21)), issue("0"))
    assert await target.written(local.store) == 22
    await assert_equal(target, local)


async def test_progress_ends_with_all_documents(local: StoreHarness, target: Target) -> None:
    await local.write(issue("a"), issue("b"))
    await target.sync(local.store)
    local.clock.advance(HOUR)
    await local.write(issue("b", title="new"), issue("c"))
    seen: list[tuple[int, int]] = []
    order = SyncOrder(to=target.address, kinds={"issue": FIELDS})
    await sync(local.store, order, on_progress=lambda each: seen.append((each.read, each.total)))

    assert seen[-1] == (3, 3)


async def test_a_second_concurrent_sync_is_refused(local: StoreHarness, target: Target) -> None:
    first = await open_destination(target.address, "github")
    try:
        if target.name == "duckdb":  # refuses other processes, which test_crash has
            return
        with pytest.raises(SyncFailed, match="another sync of github"):
            await target.sync(local.store)
        await target.sync(local.beside("shop").store)
    finally:
        await first.close()
    await target.sync(local.store)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncGenerator[Target]:
    async with open_target("postgres", tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("bigquery:project", "must be duckdb:FILE"),
        ("warehouse.duckdb", "must be duckdb:FILE"),
        ("duckdb:", "must name a path"),
        ("postgresql://user:secret@host", "must name a database"),
        ("mysql://user:secret@host/db", "must be duckdb:FILE"),
    ],
)
def test_an_unknown_destination_is_refused_without_its_password(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason) as raised:
        parse_destination(text)
    assert "secret" not in str(raised.value)


async def test_passwords_are_not_shown(database: Target, local: StoreHarness) -> None:
    assert "correct" not in repr(database.address) + database.address.shown
    wrong = parse_destination(database.url.replace("correct", "wrong"))
    with pytest.raises(SyncFailed, match="password authentication failed") as raised:
        await sync(local.store, SyncOrder(to=wrong, kinds={"issue": FIELDS}))
    assert "horse" not in str(raised.value)


async def test_missing_database_rights_are_reported_with_the_grant(database: Target, local: StoreHarness) -> None:
    await database.query("CREATE ROLE reader LOGIN PASSWORD 'x'") if not await database.query(
        "SELECT 1 FROM pg_roles WHERE rolname = 'reader'"
    ) else None
    reader = parse_destination(database.url.replace("tidegate:correct%20horse%2Fbattery%3Astaple", "reader:x"))
    with pytest.raises(SyncFailed, match="Grant CREATE on the database"):
        await sync(local.store, SyncOrder(to=reader, kinds={"issue": FIELDS}))


@pytest.mark.parametrize("name", ["duckdb", "parquet", "jsonl"])
async def test_an_unwritable_path_is_an_error_with_the_reason(name: str, tmp_path: Path, local: StoreHarness) -> None:
    (tmp_path / "file").write_text("no folder")
    address = parse_destination(f"{name}:{tmp_path / 'file' / 'warehouse'}")
    with pytest.raises(SyncFailed, match=r"Not a directory|Cannot open file"):
        await sync(local.store, SyncOrder(to=address, kinds={"issue": FIELDS}))


async def test_a_text_with_a_nul_character_is_stored_by_all_destinations(local: StoreHarness, target: Target) -> None:
    await local.write(issue("a", title="x\0y", topics=["\0"]))
    await target.sync(local.store)

    mark = "\ufffd" if target.name == "postgres" else "\0"
    row = (await target.rows())["a"]
    assert (row["title"], row["topics"]) == (f"x{mark}y", [mark])


async def test_a_duckdb_file_may_have_the_name_of_the_source(local: StoreHarness, tmp_path: Path) -> None:
    await local.write(issue("a"))
    target = Target("duckdb", f"duckdb:{tmp_path / 'github.duckdb'}")

    assert [await target.written(local.store) for _ in range(2)] == [1, 0]


async def test_duplicate_column_names_are_refused(local: StoreHarness, target: Target) -> None:
    with pytest.raises(InvalidArgument, match="two columns of this name"):
        await target.sync(local.store, {"issue": (text("owner"),)})
