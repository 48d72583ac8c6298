"""Two sources with the same kinds, ids, resources and subjects share nothing but the database."""

from pathlib import Path

from examples.own_source import LIMITS, Bookshop, BookshopSource, serve

from tidegate.engine.collection import Collection, open_sources
from tidegate.engine.credentials.memory_tokens import Tokens
from tidegate.engine.runs import Run
from tidegate.engine.source import Subject
from tidegate.settings import Settings

CORNER = Subject(user_id="corner", login="corner")


class RivalSource(BookshopSource):
    """A shop of another company with the same shelves."""

    name = "rival"


async def prices(collection: Collection, source: str) -> set[int]:
    return {found.body["price"] async for found in collection.documents.of(source).iterate("book")}


async def test_documents_and_cursors_of_two_sources_are_separate(tmp_path: Path):
    ours, theirs = Bookshop({"maps": 12}, calls=100), Bookshop({"maps": 12}, calls=100)
    for isbn in theirs.books["maps"]:
        theirs.books["maps"][isbn]["price"] = 1_000
    open_shops = [await serve(shop) for shop in (ours, theirs)]
    (_, our_url), (_, their_url) = open_shops
    sources = [BookshopSource(our_url), RivalSource(their_url)]
    tokens = {source.name: Tokens(source.name, {"counter": Bookshop.TOKEN}, limits=LIMITS) for source in sources}
    async with open_sources(Settings(data_dir=tmp_path), sources, tokens) as collection:

        async def visit(source: str) -> Run:
            [run] = await collection.collect(source, [CORNER])
            return run

        first = [await visit(source.name) for source in sources]
        assert [(run.calls, run.unchanged_calls) for run in first] == [(3, 0), (3, 0)], "each begins without a cursor"
        assert 1_000 not in await prices(collection, "bookshop")
        assert await prices(collection, "rival") == {1_000}

        ours.sell("maps", "maps-001")
        second = [await visit(source.name) for source in sources]
        assert [(run.calls, run.unchanged_calls) for run in second] == [(3, 0), (2, 1)]
        assert [await collection.documents.of(source.name).count("book") for source in sources] == [11, 12]
    for runner, _ in open_shops:
        await runner.cleanup()
