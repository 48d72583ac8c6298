"""What is particular to a store: SQL's transaction, MongoDB's addresses and absences."""

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.servers.mongo import mongo_port
from tests.servers.ports import free_port
from tests.servers.proxy import Proxy
from tests.storage.documents.harness import ALL_STORES, StoreName, issue, open_harness
from tidegate.core.errors import InvalidArgument, Unavailable
from tidegate.storage.documents import Document, DocumentSettings, open_documents, statements
from tidegate.storage.documents import mongo as mongo_module
from tidegate.storage.documents.mongo import DocumentsUnavailable, MongoDocuments, MongoDocumentStore
from tidegate.storage.documents.sql import SqlDocumentStore
from tidegate.storage.sql import Transaction

SQL = tuple(name for name in ALL_STORES if name != "mongo")


@pytest.mark.parametrize("server_name", SQL)
async def test_in_sql_documents_are_committed_and_rolled_back_with_their_transaction(
    server_name: StoreName, tmp_path: Path
) -> None:
    async with open_harness(server_name, tmp_path) as harness:
        staged = await harness.store.stage([issue("a")])

        def fails(tx: Transaction) -> None:
            assert staged.apply(tx).changed == 1
            raise LookupError

        with pytest.raises(LookupError):
            await harness.database.transaction(fails)

        assert await harness.store.get("issue", "a") is None


@pytest.mark.parametrize("server_name", SQL)
async def test_single_row_and_batch_statements_have_the_same_effect(
    server_name: StoreName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "_MOST_ROWS", 1)
    async with open_harness(server_name, tmp_path) as harness:
        assert await harness.changed(*map(issue, "abcde")) == 5
        assert await harness.changed(*map(issue, "abcdefg")) == 2


async def test_without_a_url_documents_are_in_the_database(tmp_path: Path) -> None:
    async with open_harness("sqlite", tmp_path) as harness:
        assert isinstance(harness.store, SqlDocumentStore)
        assert harness.store.name == harness.database.name


async def test_the_repr_of_a_mongodb_store_hides_user_and_password(tmp_path: Path) -> None:
    async with open_harness("mongo", tmp_path) as harness:
        assert harness.mongo_url is not None
        place = harness.mongo_url.removeprefix("mongodb://").partition("/")[0]
        store = await MongoDocuments.open(harness.mongo_url)
        assert store.name == f"mongodb://{place}"
        await store.close()

    assert "secret" not in repr(DocumentSettings(url="mongodb://user:secret@host/name"))


@pytest.mark.parametrize("url", ["mongodb://us:er:secret@host", "mongodb://secret@h:port/", "mongodb://u:secret%@h/"])
async def test_an_invalid_url_is_refused_without_showing_its_secret(url: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await MongoDocuments.open(url)

    assert "secret" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize("url", ["", "mysql://host/name", "mongodb://"])
def test_only_mongodb_urls_are_accepted(url: str) -> None:
    with pytest.raises(ValidationError):
        DocumentSettings(url=url)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_unresponsive_mongodb_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mongo_module, "_FIND_WITHIN_MS", 200)
    with pytest.raises(DocumentsUnavailable, match=r"mongodb://127\.0\.0\.1"):
        await MongoDocuments.open(f"mongodb://127.0.0.1:{free_port()}")
    gc.collect()  # the driver leaves the socket with which it was just trying


async def test_a_stopped_mongodb_is_unavailable_until_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mongo_module, "_FIND_WITHIN_MS", 2000)  # the driver looks again after 500 ms
    async with open_harness("mongo", tmp_path) as harness, Proxy(mongo_port()) as wire:
        assert harness.mongo_url is not None
        url = f"mongodb://127.0.0.1:{wire.port}/{harness.mongo_url.rpartition('/')[2]}"
        documents = await open_documents(DocumentSettings(url=url), harness.database)
        store = documents.of("github")
        await store.stage([issue("a", text="private")])

        await wire.refuse()
        with pytest.raises(Unavailable) as caught:
            await store.stage([issue("b", text="private")])
        assert "private" not in f"{caught.value} {caught.value.__context__!r}"

        await wire.listen()
        await store.stage([issue("b", text="private")])
        assert await store.count("issue") == 2
        await documents.close()


async def test_in_mongodb_a_conflicting_write_is_decided_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody writes between our look and our write: what is newer stays, whoever it belongs to."""
    look = MongoDocumentStore._present  # pyright: ignore[reportPrivateUsage]
    theirs = [issue(each, version=version, by="them") for each, version in [("a", 2), ("b", 9), ("c", 2), ("d", 9)]]

    async def look_too_early(store: MongoDocumentStore, given: Sequence[Document]) -> Any:
        found = await look(store, given)
        if overtaking := theirs[:]:
            theirs.clear()
            await store.stage(overtaking)
        return found

    async with open_harness("mongo", tmp_path) as harness:
        await harness.write(issue("a", version=1), issue("b", version=1))
        monkeypatch.setattr(MongoDocumentStore, "_present", look_too_early)

        assert await harness.changed(*(issue(each, version=3, by="us") for each in "abcd")) == 2

        by = [document.body["by"] async for document in harness.store.iterate("issue")]
        assert by == ["us", "them", "us", "them"]
