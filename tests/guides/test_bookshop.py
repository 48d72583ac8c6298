"""The source of the guide: what it makes of answers, and what becomes of a whole collection."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from examples.own_source import BOOKS, LIMITS, Bookshop, BookshopSource, serve
from multidict import CIMultiDict, CIMultiDictProxy

from tidegate.core.errors import NoCredential
from tidegate.engine.collection import Collection, open_sources
from tidegate.engine.credentials.memory_tokens import Tokens
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.progress import failures_of
from tidegate.engine.runs import Run
from tidegate.engine.source import JobSpec, Subject, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.settings import Settings

CORNER = Subject(user_id="corner", login="corner")


def task(**params: str) -> Task:
    spec = JobSpec(kind=BOOKS, resource="genre:maps", params={"path": "/genres/maps", **params})
    return Task(spec=spec, run_id=7, user_id="corner", credential="counter")


def answer(status: int = 200, body: object = None, **headers: str) -> Answer:
    return Answer(
        status=status,
        headers=CIMultiDictProxy(CIMultiDict({name.replace("_", "-"): text for name, text in headers.items()})),
        url="http://shop.example/genres/maps",
        received_at=datetime.now(UTC),
        body=msgspec.json.encode(body),
        elapsed_ms=1.0,
    )


def test_a_page_yields_documents_and_the_next_page():
    page = {"books": [{"isbn": "maps-001", "price": 9, "changed": 4}], "next": "/genres/maps?after=maps-001"}

    reading = BookshopSource("http://shop.example").read(task(), answer(body=page, ETag='"maps 4"'))

    [book], [following] = reading.documents, reading.follow_ups
    assert (book.key, book.owner, book.resource, book.sweep) == (("book", "maps-001"), "corner", "genre:maps", 7)
    assert following.params == {"path": "/genres/maps?after=maps-001", "etag": '"maps 4"'}
    assert reading.cursor is None, "the genre is not read to its end"


def test_the_last_page_ends_the_genre_with_the_etag_of_the_first():
    reading = BookshopSource("http://shop.example").read(
        task(etag='"maps 4"'), answer(body={"books": [], "next": None}, ETag='"maps 5"')
    )

    assert reading.completed == [task().listing("book")]
    assert reading.cursor is not None
    assert (reading.cursor.etag, reading.cursor.credential) == ('"maps 4"', "counter")


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (304, Verdict.DONE),
        (401, Verdict.UNAUTHORIZED),
        (404, Verdict.GONE),
        (429, Verdict.LATER),
        (500, Verdict.RETRY),
        (418, Verdict.RETRY),
    ],
)
def test_every_status_is_handled(status: int, verdict: Verdict):
    reading = BookshopSource("http://shop.example").read(task(), answer(status, Retry_After="3"))

    assert reading.verdict is verdict
    assert reading.blocked_ms == (3000 if status == 429 else None)
    assert reading.unchanged == (status == 304)


def test_the_limit_is_read_from_the_headers():
    said = {"X_Limit_Calls": "20", "X_Limit_Left": "3", "X_Limit_Ends_At": "1800000010"}
    date = "Fri, 15 Jan 2027 08:00:00 GMT"  # 1800000000

    reading = BookshopSource("http://shop.example").read(task(), answer(304, Date=date, **said))

    assert reading.allowance is not None
    assert (reading.allowance.remaining, reading.allowance.resets_in_ms) == (3, 10_000)


@asynccontextmanager
async def opened(shop: Bookshop, folder: Path, token: str = Bookshop.TOKEN) -> AsyncGenerator[Collection]:
    runner, url = await serve(shop)
    try:
        tokens = Tokens("bookshop", {"counter": token}, limits=LIMITS)
        async with open_sources(Settings(data_dir=folder), [BookshopSource(url)], tokens) as collection:
            yield collection
    finally:
        await runner.cleanup()


async def collect(collection: Collection) -> Run:
    [run] = await collection.collect("bookshop", [CORNER])
    return run


@pytest.mark.full
async def test_a_faulty_shop_is_collected_within_its_limit(tmp_path: Path):
    shop = Bookshop({"maps": 25, "novels": 35, "poems": 8}, calls=6, window_s=1)
    shop.trouble = {"/genres/maps": [503], "/genres/poems": [404]}
    async with opened(shop, tmp_path) as collection:
        run = await collect(collection)
        failures = await collection.parts.database.read(failures_of, [run.id])

        assert run.status is RunState.COMPLETED
        assert [(failure.resource, failure.reason) for failure in failures] == [
            ("genre:poems", "there is no such genre any more")
        ]
        books = {found.id: found.body async for found in collection.documents.of("bookshop").iterate("book")}
        assert books == {isbn: book for genre in ("maps", "novels") for isbn, book in shop.books[genre].items()}
        assert shop.broken == 0
        assert run.calls == shop.calls == 1 + (3 + 1) + 4 + 1


async def test_an_invalid_book_is_skipped_and_counted_and_its_genre_is_kept(tmp_path: Path):
    shop = Bookshop({"maps": 25}, calls=100)
    async with opened(shop, tmp_path) as collection:
        await collect(collection)
        for isbn, spoilt in {"maps-003": None, "maps-014": {"price": 1}, "maps-024": {"isbn": 7, "changed": 1}}.items():
            shop.reprice("maps", isbn, 1)
            shop.books["maps"][isbn] = spoilt  # pyright: ignore[reportArgumentType]
        run = await collect(collection)

        assert (run.status, run.failed_jobs, run.skipped_items) == (RunState.COMPLETED, 0, 3)
        assert await collection.documents.of("bookshop").count("book") == 25, (
            "what was collected before is not called gone"
        )


@pytest.mark.full
async def test_sold_books_are_marked_gone_and_unchanged_genres_are_free(tmp_path: Path):
    shop = Bookshop({"maps": 25, "poems": 8}, calls=100)
    async with opened(shop, tmp_path) as collection:
        await collect(collection)
        shop.sell("poems", "poems-002")
        second = await collect(collection)

        assert (second.calls, second.unchanged_calls) == (1 + 1 + 1, 1)
        sold = await collection.documents.of("bookshop").get("book", "poems-002")
        assert sold is not None
        assert sold.gone_at is not None
        assert await collection.documents.of("bookshop").count("book") == 32


async def test_a_token_unknown_to_the_shop_fails_the_run_with_the_reason(tmp_path: Path):
    async with opened(Bookshop({"maps": 5}), tmp_path, token="wrong") as collection:
        run = await collect(collection)

        assert run.status is RunState.FAILED
        assert "the shop does not know this token" in (run.last_error or "")
        with pytest.raises(NoCredential, match="all of 'bookshop' were rejected"):
            await collection.begin("bookshop", CORNER)
