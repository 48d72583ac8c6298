"""A custom source: the books of all genres of a shop, page by page, under a limit.

    python examples/own_source.py

`BookshopSource` and the functions below it are all that you have to write; docs/guides/write-a-source.md explains
them. The shop stands beside them, so that the example runs without the internet.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import msgspec
import uvloop
from aiohttp import web

from tidegate import Answer, Collection, Cursor, JobSpec, Reading, Request, Settings, Subject, Task, configure_logs
from tidegate.engine import Allowance, CredentialLimits, Tokens, Verdict, columns, open_sources, read_items

GENRES, BOOKS = "GENRES", "BOOKS"


class BookshopSource:
    """The genres of a shop, and the books of each."""

    name = "bookshop"
    planning_kinds = frozenset({GENRES})
    columns: ClassVar = {"book": [columns.text("isbn"), columns.whole("price")]}

    def __init__(self, url: str | None = None) -> None:
        self._url = url or os.environ["BOOKSHOP_URL"]

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        return [JobSpec(kind=GENRES, resource=f"shop:{subject.login}", params={"path": "/genres"})]

    def request(self, task: Task, secret: str) -> Request:
        headers = {"Authorization": f"Bearer {secret}"}
        if task.etag is not None:
            headers["If-None-Match"] = task.etag
        return Request(url=self._url + task.spec.params["path"], purpose=f"bookshop.{task.spec.kind}", headers=headers)

    def read(self, task: Task, answer: Answer) -> Reading:
        return msgspec.structs.replace(self._meaning(task, answer), allowance=allowance(answer))

    def _meaning(self, task: Task, answer: Answer) -> Reading:
        match answer.status:
            case 200:
                return read_genres(answer) if task.spec.kind == GENRES else read_books(task, answer)
            case 304:
                return Reading(unchanged=True)
            case 401:
                return Reading(verdict=Verdict.UNAUTHORIZED, reason="the shop does not know this token")
            case 404:
                return Reading(verdict=Verdict.GONE, reason="there is no such genre any more")
            case 429:
                rest_ms = 1000 * int(answer.headers["Retry-After"])
                return Reading(verdict=Verdict.LATER, reason="too many calls", blocked_ms=rest_ms)
            case status:
                return Reading(verdict=Verdict.RETRY, reason=f"status {status}")


def read_genres(answer: Answer) -> Reading:
    """A job for the first page of every genre."""
    genres = read_items(answer.body, str)
    jobs = [JobSpec(kind=BOOKS, resource=f"genre:{name}", params={"path": f"/genres/{name}"}) for name in genres.read]
    return Reading(follow_ups=jobs, skipped=genres.skipped)


class Book(msgspec.Struct):
    """The decoded fields of a book; its document is stored as received."""

    isbn: str
    changed: int


class Page(msgspec.Struct):
    """A page of a genre."""

    books: list[msgspec.Raw]
    next: str | None


def read_books(task: Task, answer: Answer) -> Reading:
    """The books of a page, and either the next page or the end of the genre."""
    page = msgspec.json.decode(answer.body, type=Page)
    books = read_items(page.books, Book, lambda book, raw: task.document("book", book.isbn, raw, version=book.changed))
    # The ETag of the first page: changes during the reading are then found by the next run.
    etag = task.spec.params.get("etag", answer.headers.get("ETag"))
    if page.next is not None:
        jobs = [task.next_page(page.next, path=page.next, etag=etag)]
        return Reading(documents=books.documents, skipped=books.skipped, follow_ups=jobs)
    cursor, whole = Cursor(etag=etag, credential=task.credential), [task.listing("book")]
    return Reading(documents=books.documents, skipped=books.skipped, completed=whole, cursor=cursor)


def allowance(answer: Answer) -> Allowance | None:
    """The limit that the shop reports; None if it reports none."""
    if "X-Limit-Left" not in answer.headers:
        return None
    calls, left, ends_at = (int(answer.headers[f"X-Limit-{name}"]) for name in ("Calls", "Left", "Ends-At"))
    now = answer.date or answer.received_at  # by the shop's clock, if the answer has a date
    resets_in_ms = round(1000 * (ends_at - now.timestamp()))
    return Allowance(limit=calls, remaining=left, window=ends_at, resets_in_ms=resets_in_ms)


class Bookshop:
    """A small upstream: it knows one token, allows it so many calls in a window, and counts for itself."""

    TOKEN = "the-shops-token"

    def __init__(self, genres: dict[str, int], *, calls: int = 20, window_s: int = 2, per_page: int = 10) -> None:
        self.books = {
            genre: {f"{genre}-{n:03}": {"isbn": f"{genre}-{n:03}", "price": 10 + n, "changed": 1} for n in range(count)}
            for genre, count in genres.items()
        }
        self.versions = dict.fromkeys(genres, 1)
        self.limit, self.window_s, self.per_page = calls, window_s, per_page
        self.trouble: dict[str, list[int]] = {}
        self.ends_at = self.used = self.calls = self.broken = 0

    def reprice(self, genre: str, isbn: str, price: int) -> None:
        self.versions[genre] += 1
        self.books[genre][isbn] |= {"price": price, "changed": self.versions[genre]}

    def sell(self, genre: str, isbn: str) -> None:
        self.versions[genre] += 1
        del self.books[genre][isbn]

    async def answer(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.TOKEN}":
            return web.json_response({}, status=401)
        headers = self._count()
        if self.used > self.limit:
            self.broken += 1
            return web.json_response({}, status=429, headers={**headers, "Retry-After": str(self.window_s)})
        if planned := self.trouble.get(request.path):
            return web.json_response({}, status=planned.pop(0), headers=headers)
        return self._content(request, headers)

    def _count(self) -> dict[str, str]:
        if time.time() >= self.ends_at:
            self.ends_at, self.used = int(time.time()) + self.window_s, 0
        self.calls, self.used = self.calls + 1, self.used + 1
        left = max(0, self.limit - self.used)
        return {"X-Limit-Calls": str(self.limit), "X-Limit-Left": str(left), "X-Limit-Ends-At": str(self.ends_at)}

    def _content(self, request: web.Request, headers: dict[str, str]) -> web.Response:
        if request.path == "/genres":
            return web.json_response(sorted(self.books), headers=headers)
        genre = request.path.removeprefix("/genres/")
        if genre not in self.books:
            return web.json_response({}, status=404, headers=headers)
        headers["ETag"] = f'"{genre} {self.versions[genre]}"'
        if request.headers.get("If-None-Match") == headers["ETag"]:
            self.used -= 1  # it is free
            return web.Response(status=304, headers=headers)
        after = request.query.get("after", "")
        left = [book for isbn, book in sorted(self.books[genre].items()) if isbn > after]
        page = left[: self.per_page]
        following = f"/genres/{genre}?after={page[-1]['isbn']}" if len(left) > len(page) else None
        return web.json_response({"books": page, "next": following}, headers=headers)


async def serve(shop: Bookshop) -> tuple[web.AppRunner, str]:
    """Open the shop; returns what closes it, and its address."""
    application = web.Application()
    application.router.add_get("/{path:.*}", shop.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


LIMITS = CredentialLimits(concurrency=5, floor=0)


async def visit(collection: Collection, why: str) -> None:
    """Collect the shop once, and print the result."""
    [run] = await collection.collect("bookshop", [Subject(user_id="corner", login="corner")])
    books = collection.documents.of("bookshop")
    there, ever = await books.count("book"), await books.count("book", with_gone=True)
    print(f"{why}: {run.status}, {run.calls} calls, {run.unchanged_calls} of them free")
    print(f"  {there} books exist, {ever - there} existed before")


async def main(folder: str) -> None:
    """Three visits: the second finds nothing new, the third what changed."""
    shop = Bookshop({"maps": 25, "novels": 142, "poems": 8})
    runner, url = await serve(shop)
    tokens = Tokens("bookshop", {"counter": Bookshop.TOKEN}, limits=LIMITS)
    async with open_sources(Settings(data_dir=Path(folder)), [BookshopSource(url)], tokens) as collection:
        await visit(collection, "at first")
        await visit(collection, "nothing new")
        shop.reprice("novels", "novels-007", 3)
        shop.sell("poems", "poems-002")
        await visit(collection, "after a sale")
        book = await collection.documents.of("bookshop").get("book", "novels-007")
        print(f"novels-007 costs {book.body['price'] if book else '?'} now")
    print(f"the shop counted {shop.calls} calls; its limit was broken {shop.broken} times")
    await runner.cleanup()


async def stay_open() -> None:
    """Serve the shop until Ctrl-C, for `tidegate collect --source bookshop`."""
    _, url = await serve(Bookshop({"maps": 25, "novels": 142, "poems": 8}))
    source = """TIDEGATE_SOURCES='["examples.own_source:BookshopSource"]'"""
    print(f"export BOOKSHOP_URL={url} SHOP_TOKEN={Bookshop.TOKEN} PYTHONPATH=. {source}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    configure_logs(level="warning")
    if sys.argv[1:] == ["--serve"]:
        with suppress(KeyboardInterrupt):
            uvloop.run(stay_open())
        sys.exit()
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(main(folder))
