"""Writes that depend on what is stored, on every store."""

import asyncio

from tests.storage.documents.harness import StoreHarness, issue
from tidegate.storage.documents import ConditionalWrite, Document, Listing, StoredDocument, WriteAction, Written


def only_new(document: Document) -> ConditionalWrite:
    return ConditionalWrite(document, lambda old: WriteAction.WRITE if old is None else WriteAction.SKIP)


def removal(document: Document) -> ConditionalWrite:
    return ConditionalWrite(
        document, lambda old: WriteAction.SKIP if old is not None and old.gone_at is not None else WriteAction.REMOVE
    )


def always(document: Document) -> ConditionalWrite:
    return ConditionalWrite(document, lambda _: WriteAction.WRITE)


async def write(harness: StoreHarness, *writes: ConditionalWrite, completed: tuple[Listing, ...] = ()) -> Written:
    staged = await harness.store.stage_conditional(writes, completed=completed)
    return await harness.database.transaction(staged.apply)


async def test_a_rule_decides_on_the_stored_document(harness: StoreHarness):
    await harness.write(issue("1", title="old", version="2026-01-01"))
    seen = list[StoredDocument | None]()

    def note(old: StoredDocument | None) -> WriteAction:
        seen.append(old)
        return WriteAction.SKIP

    assert await write(harness, ConditionalWrite(issue("1"), note), ConditionalWrite(issue("2"), note)) == Written(
        changed=0, gone=0
    )
    first, second = seen
    assert first is not None
    assert (first.body["title"], first.version, first.gone_at) == ("old", "2026-01-01", None)
    assert second is None
    assert await harness.ids() == ["1"]


async def test_an_existing_document_is_kept_when_only_new_ones_are_wanted(harness: StoreHarness):
    await harness.write(issue("1", title="whole"))
    written = await write(harness, only_new(issue("1", title="part")), only_new(issue("2", title="part")))
    assert written == Written(changed=1, gone=0)
    assert (await harness.get("1")).body["title"] == "whole"
    assert (await harness.get("2")).body["title"] == "part"


async def test_a_removal_marks_the_document_and_keeps_its_content(harness: StoreHarness):
    await harness.write(issue("1", title="last"))
    before = await harness.get("1")
    assert await write(harness, removal(issue("1", title="another"))) == Written(changed=0, gone=1)
    after = await harness.get("1")
    assert (after.body["title"], after.fingerprint) == ("last", before.fingerprint * 2)
    assert after.gone_at is not None
    assert await write(harness, removal(issue("1"))) == Written(changed=0, gone=0), "twice is once"


async def test_a_removal_of_an_unknown_document_stores_it_as_gone(harness: StoreHarness):
    assert await write(harness, removal(issue("1", title="brief"))) == Written(changed=0, gone=1)
    found = await harness.get("1")
    assert (found.body["title"], found.gone_at is not None) == ("brief", True)
    assert await write(harness, only_new(issue("1"))) == Written(changed=0, gone=0)
    assert await harness.ids() == []


async def test_a_document_written_by_a_rule_equals_one_of_a_run(harness: StoreHarness):
    await write(harness, always(issue("1", title="same", version="2")))
    conditional = await harness.get("1")
    assert await harness.changed(issue("1", title="same", version="2", sweep=5)) == 0
    await harness.write(issue("2", title="same", version="2"))
    [at] = {each.fingerprint for each in await harness.store.moments("issue")}
    assert at == conditional.fingerprint + (await harness.get("2")).fingerprint


async def test_an_older_run_neither_revives_nor_removes_a_document(harness: StoreHarness):
    await write(harness, removal(issue("1", sweep=7)), always(issue("2", sweep=7)))
    await harness.write(issue("1", title="read before", sweep=7), completed=[Listing("issue", "repo:octocat/hello", 7)])
    assert await harness.ids() == ["2"]
    await harness.write(issue("1", title="back", sweep=8))
    assert await harness.ids() == ["1", "2"]


async def test_listings_can_be_completed_after_a_conditional_write(harness: StoreHarness):
    await harness.write(issue("1", sweep=3), issue("2", sweep=3))
    written = await write(harness, completed=(Listing("issue", "repo:octocat/hello", 4),))
    assert (written, await harness.ids()) == (Written(changed=0, gone=2), [])


async def test_many_documents_are_written_at_once_and_the_last_of_a_key_counts(harness: StoreHarness):
    many = [only_new(issue(str(number), sweep=1)) for number in range(2_100)]
    assert (await write(harness, *many, only_new(issue("7", title="last")))).changed == 2_100
    assert (await harness.get("7")).body["title"] == "last"
    assert (await write(harness, *many)).changed == 0


async def test_of_concurrent_writers_one_inserts_and_the_others_see_it(harness: StoreHarness):
    written = await asyncio.gather(*(write(harness, only_new(issue("1", title=str(n)))) for n in range(8)))
    assert sum(each.changed for each in written) == 1
