"""What every store does, whichever it is."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.storage.documents.harness import StoreHarness, issue
from tidegate.core.errors import InvalidArgument
from tidegate.storage.documents import LARGEST_BODY, Document, Listing, Written
from tidegate.storage.sql import Transaction

HELLO = "repo:octocat/hello"


async def test_a_written_document_is_found(harness: StoreHarness) -> None:
    assert await harness.changed(issue("7", version="2026-01-02T03:04:05Z", labels=["a", {"b": None}])) == 1

    found = await harness.get("7")
    assert (found.kind, found.id, found.owner, found.resource) == ("issue", "7", "octocat", HELLO)
    assert found.version == "2026-01-02T03:04:05Z"
    assert found.body == {"number": "7", "title": "first", "labels": ["a", {"b": None}]}
    assert found.created_at == found.changed_at == harness.clock.now()
    assert found.gone_at is None


async def test_an_unknown_document_is_not_found(harness: StoreHarness) -> None:
    await harness.write(issue("1"))

    assert await harness.store.get("issue", "2") is None
    assert await harness.store.get("commit", "1") is None
    assert await harness.store.count("commit") == 0


async def test_writing_an_empty_batch_changes_nothing(harness: StoreHarness) -> None:
    assert await harness.write() == Written(changed=0, gone=0)


async def test_writing_the_same_document_again_changes_nothing(harness: StoreHarness) -> None:
    documents = [issue(str(number), version=number) for number in range(5)]
    assert await harness.changed(*documents) == 5
    written_at = harness.clock.now()
    harness.clock.advance(timedelta(hours=1))

    assert await harness.changed(*reversed(documents)) == 0

    assert (await harness.get("3")).changed_at == written_at


async def test_the_order_of_keys_in_a_body_is_no_change(harness: StoreHarness) -> None:
    one: dict[str, Any] = {"a": 1, "b": {"c": 1, "d": 2}}
    other: dict[str, Any] = {"b": {"d": 2, "c": 1}, "a": 1}
    made = [Document.of("issue", "1", owner="o", resource="r", body=body) for body in (one, other)]

    assert [await harness.changed(document) for document in made] == [1, 0]


@pytest.mark.parametrize("change", [{"title": "x"}, {"owner": "x"}, {"resource": "x"}, {"version": 2}])
async def test_any_difference_is_a_change(harness: StoreHarness, change: dict[str, Any]) -> None:
    await harness.write(issue(version=1))
    created_at = harness.clock.now()
    harness.clock.advance(timedelta(hours=1))

    assert await harness.changed(issue(**{"version": 1, **change})) == 1

    found = await harness.get("1")
    assert (found.created_at, found.changed_at) == (created_at, harness.clock.now())
    assert found.owner == change.get("owner", "octocat")
    assert found.resource == change.get("resource", HELLO)
    assert found.body["title"] == change.get("title", "first")


async def test_only_changed_documents_are_counted(harness: StoreHarness) -> None:
    await harness.write(*(issue(str(number)) for number in range(10)))

    assert await harness.changed(*(issue(str(number), odd=number % 2 or None) for number in range(4, 14))) == 10
    assert await harness.changed(*(issue(str(number), odd=number % 2 or None) for number in range(4, 15))) == 1


@pytest.mark.parametrize(
    ("older", "newer"), [(1, 2), (9, 10), ("2026-01-01T09:00:00Z", "2026-01-01T10:00:00Z"), ("a", "ab"), ("Z", "a")]
)
async def test_an_older_version_never_replaces_a_newer_one(
    harness: StoreHarness, older: int | str, newer: int | str
) -> None:
    await harness.write(issue(version=newer, title="newer"))

    assert await harness.changed(issue(version=older, title="older")) == 0

    assert (await harness.get("1")).body["title"] == "newer"


async def test_a_newer_or_equal_version_replaces(harness: StoreHarness) -> None:
    """The upstream changes some fields without a new version, so the last answer is believed."""
    titles: list[str] = []
    for version, title in [(9, "a"), (10, "b"), (10, "c"), (2**62, "d")]:
        assert await harness.changed(issue(version=version, title=title)) == 1
        titles.append((await harness.get("1")).body["title"])

    assert titles == ["a", "b", "c", "d"]


async def test_without_a_version_the_last_write_counts(harness: StoreHarness) -> None:
    for version, title in [(None, "a"), (None, "b"), (5, "c"), (None, "d"), (1, "e")]:
        assert await harness.changed(issue(version=version, title=title)) == 1
        assert (await harness.get("1")).body["title"] == title


async def test_of_duplicates_in_one_batch_the_last_counts_unless_it_is_older(harness: StoreHarness) -> None:
    assert await harness.changed(issue(title="a"), issue("2"), issue(title="b")) == 2
    assert (await harness.get("1")).body["title"] == "b"

    assert await harness.changed(issue(version=2, title="c"), issue(version=1, title="d")) == 1
    assert (await harness.get("1")).body["title"] == "c"


async def test_ids_are_unique_per_kind(harness: StoreHarness) -> None:
    await harness.write(issue("1", kind="issue"), issue("1", kind="pull", title="p"))

    assert (await harness.get("1", "issue")).body["title"] == "first"
    assert (await harness.get("1", "pull")).body["title"] == "p"
    assert [await harness.store.count(kind) for kind in ("issue", "pull")] == [1, 1]


async def test_ids_that_differ_by_case_or_accent_are_different(harness: StoreHarness) -> None:
    ids = ["a", "A", "á", "ａ", "ß", "ss", "a b", "a|b", "{a}", "%", "_", "'", '"', "\\", "日本", "🌊"]

    assert await harness.changed(*map(issue, ids)) == len(ids)

    assert await harness.ids() == sorted(ids)
    assert [(await harness.get(each)).body["number"] for each in ids] == ids


BODIES: dict[str, dict[str, Any]] = {
    "empty": {},
    "unicode": {"title": "Übergröße 日本語 🌊 \u202e", "🌊": "ключ", "nul": "a\x00b", "lines": "\r\n\t\u2028"},
    "numbers": {"zero": 0, "large": 2**63 - 1, "least": -(2**63), "larger": 2**70, "float": 0.1, "whole": 1.0},
    "keys": {"a.b": 1, "$set": 2, "": 3, "files": {"x.py": {"$y": [{"z.z": 1}]}}, "a\x00b": 4, "_id": 5, "id": 6},
    "quotes": {"sql": "'; DROP TABLE documents; --", "percent": "100 %s %(x)s", "backslash": "\\'\\", "colon": ":x $1"},
    "nothing": {"null": None, "false": False, "list": [], "dict": {}, "nested": [[], [None, [{}]]]},
    "deep": {"d": [[[[[[[[[[{"e": [[[[[[[[[[1]]]]]]]]]]}]]]]]]]]]]},
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_bodies_are_returned_unchanged(harness: StoreHarness, body: dict[str, Any]) -> None:
    document = Document.of("issue", "1", owner="o", resource="r", body=body)
    await harness.write(document)

    found = (await harness.get("1")).body
    assert found == body
    assert {key: type(value) for key, value in found.items()} == {key: type(value) for key, value in body.items()}
    assert await harness.changed(document) == 0


async def test_a_body_with_five_hundred_levels_is_returned(harness: StoreHarness) -> None:
    text = '{"d": ' + "[" * 500 + "]" * 500 + "}"
    await harness.write(Document.of("issue", "1", owner="o", resource="r", body=msgspec.Raw(text.encode())))

    assert msgspec.json.encode((await harness.get("1")).body) == text.replace(" ", "").encode()


async def test_the_bytes_of_the_upstream_can_be_written(harness: StoreHarness) -> None:
    """Without reading and writing them anew."""
    items = msgspec.json.decode(b'[{"id": 1, "n": [1,  2]}, {"id": 2}]', type=list[msgspec.Raw])
    made = [Document.of("issue", str(n), owner="o", resource="r", body=raw) for n, raw in enumerate(items)]

    assert await harness.changed(*made) == 2

    assert (await harness.get("0")).body == {"id": 1, "n": [1, 2]}
    assert await harness.changed(*made) == 0


async def test_the_largest_allowed_body_is_stored(harness: StoreHarness) -> None:
    """Quotes are the worst case for servers that escape them, small numbers for those that store them by name."""
    bodies = [{"quotes": "'\"\\" * ((LARGEST_BODY - 20) // 5)}, {"numbers": [1] * ((LARGEST_BODY - 20) // 2)}]
    for number, body in enumerate(bodies):
        document = Document.of("issue", str(number), owner="o", resource="r", body=body)
        assert await harness.changed(document) == 1
        assert (await harness.get(str(number))).body == body


async def test_many_large_bodies_fit_into_one_batch(harness: StoreHarness) -> None:
    assert await harness.changed(*(issue(str(number), text="x" * 1_000_000) for number in range(12))) == 12
    assert len((await harness.get("11")).body["text"]) == 1_000_000


async def test_five_thousand_documents_fit_into_one_batch(harness: StoreHarness) -> None:
    documents = [issue(f"{number:05}", version=number, sweep=1) for number in range(5000)]

    assert await harness.changed(*documents) == 5000
    assert await harness.changed(*documents) == 0
    changed = [issue(f"{number:05}", version=number + 1, sweep=2) for number in range(4800, 5300)]
    assert await harness.changed(*changed) == 500

    assert await harness.store.count("issue", "octocat") == 5300
    assert await harness.ids(batch=2000) == [f"{number:05}" for number in range(5300)]


async def test_documents_are_counted_and_read_for_one_owner_or_all(harness: StoreHarness) -> None:
    await harness.write(
        *(issue(f"{number}", owner=f"user{number % 3}") for number in range(9)), issue("x", kind="pull")
    )

    assert await harness.store.count("issue") == 9
    assert await harness.store.count("issue", "user1") == 3
    assert await harness.store.count("issue", "USER1") == 0
    assert await harness.ids(owner="user1") == ["1", "4", "7"]
    assert await harness.ids(owner="nobody") == []
    assert await harness.ids("pull") == ["x"]


@pytest.mark.parametrize("batch", [1, 3, 9, 10, 100])
async def test_pages_of_any_size_return_everything_once(harness: StoreHarness, batch: int) -> None:
    ids = sorted(f"{number}" for number in range(9))
    await harness.write(*map(issue, ids))

    assert await harness.ids(batch=batch) == ids
    assert await harness.ids(owner="octocat", batch=batch) == ids


async def test_unchanged_documents_are_returned_once_during_concurrent_writes(harness: StoreHarness) -> None:
    await harness.write(*(issue(f"{number:02}") for number in range(0, 40, 2)))
    told: list[str] = []
    async for document in harness.store.iterate("issue", batch=3):
        told.append(document.id)
        number = int(document.id)
        await harness.write(issue(f"{39 - number:02}", late=True), issue(document.id, changed=True))

    assert told == sorted(set(told))
    assert set(told) >= {f"{number:02}" for number in range(0, 40, 2)}


async def test_documents_missing_in_a_complete_listing_are_marked_and_kept(harness: StoreHarness) -> None:
    await harness.write(*(issue(each, sweep=1) for each in "abc"))
    harness.clock.advance(timedelta(hours=1))

    written = await harness.write(issue("b", sweep=2), completed=[Listing("issue", HELLO, 2)])

    assert written == Written(changed=0, gone=2)
    assert [(await harness.get(each)).gone_at for each in "abc"] == [harness.clock.now(), None, harness.clock.now()]
    assert (await harness.get("a")).body["title"] == "first"
    assert await harness.ids() == ["b"]
    assert await harness.ids(with_gone=True) == ["a", "b", "c"]
    assert await harness.store.count("issue") == 1
    assert await harness.store.count("issue", "octocat", with_gone=True) == 3


async def test_marking_again_changes_nothing(harness: StoreHarness) -> None:
    await harness.write(issue("a", sweep=1), completed=[Listing("issue", HELLO, 2)])
    marked_at = harness.clock.now()
    harness.clock.advance(timedelta(hours=1))

    assert await harness.write(completed=[Listing("issue", HELLO, 2)]) == Written(changed=0, gone=0)
    assert await harness.write(completed=[Listing("issue", HELLO, 3)]) == Written(changed=0, gone=0)

    assert (await harness.get("a")).gone_at == marked_at


async def test_a_listing_affects_only_its_kind_and_resource(harness: StoreHarness) -> None:
    await harness.write(issue("a", sweep=1), issue("b", sweep=1, resource="other"), issue("a", sweep=1, kind="pull"))

    assert (await harness.write(completed=[Listing("issue", HELLO, 2)])).gone == 1

    assert (await harness.get("b")).gone_at is None
    assert (await harness.get("a", "pull")).gone_at is None


async def test_pages_of_one_listing_are_completed_together(harness: StoreHarness) -> None:
    """Also where nothing changed, and where a page was written twice."""
    await harness.write(*(issue(each, sweep=1) for each in "abcd"))
    await harness.write(issue("a", sweep=2), issue("b", sweep=2, title="new"))
    await harness.write(issue("a", sweep=2), issue("b", sweep=2, title="new"))
    await harness.write(issue("c", sweep=2))

    assert (await harness.write(completed=[Listing("issue", HELLO, 2)])).gone == 1
    assert await harness.ids() == ["a", "b", "c"]


async def test_a_late_listing_marks_no_document_seen_since(harness: StoreHarness) -> None:
    await harness.write(issue("a", sweep=3), issue("b", sweep=2))

    assert (await harness.write(completed=[Listing("issue", HELLO, 2)])).gone == 0
    assert (await harness.write(issue("a", sweep=1), completed=[Listing("issue", HELLO, 3)])).gone == 1
    assert await harness.ids() == ["a"]


async def test_a_returned_document_is_no_longer_gone(harness: StoreHarness) -> None:
    await harness.write(issue("a", sweep=1), issue("b", sweep=1), completed=[Listing("issue", HELLO, 2)])

    assert await harness.changed(issue("a", sweep=3)) == 1
    assert await harness.changed(issue("b")) == 1

    assert await harness.ids() == ["a", "b"]


async def test_a_late_write_of_the_run_that_missed_it_does_not_restore_a_document(harness: StoreHarness) -> None:
    await harness.write(issue("a", sweep=1, version=1), issue("b", sweep=1, version=5))
    await harness.write(completed=[Listing("issue", HELLO, 2)])

    assert await harness.changed(issue("a", sweep=1, version=2), issue("b", sweep=3, version=4)) == 0
    assert await harness.changed(issue("a", sweep=2, version=2), issue("b", version=4)) == 0

    assert await harness.ids() == []


async def test_a_moved_document_is_found_by_an_earlier_run_than_the_one_that_missed_it(
    harness: StoreHarness,
) -> None:
    """Both run at once: the later run of the former owner is the first to end."""
    old, new = {"owner": "octocat", "resource": HELLO}, {"owner": "hubot", "resource": "repo:hubot/hello"}
    await harness.write(issue("a", sweep=1, version=1, **old))
    await harness.write(completed=[Listing("issue", HELLO, 7)])

    assert await harness.changed(issue("a", sweep=6, version=1, **new)) == 1
    found = await harness.get("a")
    assert (found.owner, found.resource, found.gone_at) == ("hubot", "repo:hubot/hello", None)

    again = [Listing("issue", HELLO, 7), Listing("issue", "repo:hubot/hello", 6)]
    assert await harness.write(issue("a", sweep=6, version=1, **new), completed=again) == Written(changed=0, gone=0)
    assert await harness.changed(issue("a", sweep=6, version=0, **old)) == 0, "an older version never comes back"


async def test_a_later_run_of_the_new_owner_that_misses_it_marks_it(harness: StoreHarness) -> None:
    await harness.write(issue("a", sweep=1), completed=[Listing("issue", HELLO, 7)])
    await harness.write(issue("a", sweep=6, owner="hubot", resource="repo:hubot/hello"))

    assert (await harness.write(completed=[Listing("issue", "repo:hubot/hello", 8)])).gone == 1
    assert await harness.changed(issue("a", sweep=6, owner="hubot", resource="repo:hubot/hello")) == 0
    assert await harness.ids() == []


async def test_a_moved_item_is_not_missing_at_its_former_owner(harness: StoreHarness) -> None:
    await harness.write(issue("a", sweep=1))
    await harness.write(issue("a", sweep=2, resource="repo:octocat/new"))

    assert (await harness.write(completed=[Listing("issue", HELLO, 3)])).gone == 0


async def test_concurrent_writers_leave_the_newest_version(harness: StoreHarness) -> None:
    """Each writes the same documents, in versions of its own; whoever comes last, the highest version stays."""

    async def write(version: int) -> int:
        return await harness.changed(*(issue(str(n), version=version, sweep=version, by=version) for n in range(30)))

    changed = await asyncio.gather(*(write(version) for version in (3, 8, 1, 6, 2, 7, 4, 5)))

    bodies = [document.body async for document in harness.store.iterate("issue")]
    assert [body["by"] for body in bodies] == [8] * 30
    assert changed[1] == 30
    assert sum(changed) >= 30


async def test_concurrent_writers_of_one_document_count_it_once(harness: StoreHarness) -> None:
    changed = await asyncio.gather(*(harness.changed(*(issue(str(n)) for n in range(20))) for _ in range(8)))

    assert sum(changed) == 20
    assert await harness.store.count("issue") == 20


async def test_a_crash_between_stage_and_commit_has_no_effect(harness: StoreHarness) -> None:
    documents = [issue(each, version=1) for each in "abc"]
    await harness.store.stage(documents)  # and then nothing: the process is gone

    staged = await harness.store.stage(documents)
    await harness.database.transaction(staged.apply)

    assert await harness.ids() == ["a", "b", "c"]
    assert await harness.changed(*documents) == 0


async def test_a_repeated_transaction_writes_once(harness: StoreHarness) -> None:
    staged = await harness.store.stage([issue("a"), issue("b")])

    def fails(tx: Transaction) -> None:
        staged.apply(tx)
        raise LookupError

    with pytest.raises(LookupError):
        await harness.database.transaction(fails)
    written = await harness.database.transaction(staged.apply)

    assert written.changed == 2
    assert await harness.store.count("issue") == 2


@pytest.mark.parametrize("batch", [0, -1])
async def test_an_empty_listing_batch_is_refused(harness: StoreHarness, batch: int) -> None:
    with pytest.raises(InvalidArgument):
        await harness.ids(batch=batch)


@pytest.mark.parametrize("kind", ["", "a|b", "x" * 65])
async def test_an_invalid_kind_is_refused(harness: StoreHarness, kind: str) -> None:
    with pytest.raises(InvalidArgument):
        await harness.store.get(kind, "1")
    with pytest.raises(InvalidArgument):
        await harness.store.count(kind)
    with pytest.raises(InvalidArgument):
        await harness.ids(kind)


async def test_documents_of_two_sources_with_equal_kind_and_id_are_separate(harness: StoreHarness) -> None:
    theirs = harness.beside("bookshop")
    await harness.write(issue("1", title="ours", version=9, sweep=1), issue("2", sweep=1))
    await theirs.write(issue("1", title="theirs", version=1, sweep=2), issue("3", kind="book", sweep=2))

    assert (await harness.get("1")).body["title"] == "ours"
    assert (await theirs.get("1")).body["title"] == "theirs"
    assert [await harness.store.kinds(), await theirs.store.kinds()] == [["issue"], ["book", "issue"]]
    assert [await harness.ids(), await theirs.ids()] == [["1", "2"], ["1"]]
    assert sum((await theirs.store.changes("issue", "octocat")).values()) == 1

    gone = await theirs.write(issue("4", sweep=3), completed=[Listing("issue", "repo:octocat/hello", 3)])
    assert gone.gone == 1
    assert [await harness.store.count("issue"), await theirs.store.count("issue")] == [2, 1]
    assert await harness.changed(issue("1", title="ours", version=9, sweep=4)) == 0, "the other's sweep is not ours"
