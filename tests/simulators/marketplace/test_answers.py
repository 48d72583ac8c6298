"""Pages and documents as a crawler meets them."""

import json
from urllib.parse import quote_plus

import pytest

from tests.simulators.marketplace.client import SMALL, Client, Got, simulated
from tidegate_simulators.marketplace import Behaviour, Politeness, RobotsGroup, RobotsSettings, World, WorldShape


def addresses(product: int, shop: int) -> list[str]:
    return [f"/api/shops/{shop}/mini?product={product}", f"/api/products/{product}", f"/api/products/{product}/options"]


async def listing(client: Client, keyword: str, host: int = 0) -> list[Got]:
    """All pages of a search."""
    pages = [await client.get(f"/search?q={quote_plus(keyword)}", host=host)]
    while pages[-1].following is not None:
        pages.append(await client.get(pages[-1].following, host=host))
    return pages


async def test_a_client_that_follows_all_links_politely_gets_the_true_data_without_violations():
    """The whole of a crawl: robots.txt, every listing, three documents for each product, on two hosts."""
    robots = RobotsSettings(groups=(RobotsGroup(crawl_delay_s=2),))
    world = WorldShape(products=60, hosts=2, keywords=3, per_page=8)
    async with simulated(world=world, robots=robots, politeness=Politeness(delay_s=1)) as client:
        found: dict[int, list[object]] = {}
        for host in range(2):
            assert (await client.get("/robots.txt", host=host)).status == 200
            waiting = [f"/search?q={quote_plus(word)}" for word in client.sim.world.keywords]
            while waiting:
                client.ticks.advance(2)
                page = await client.get(waiting.pop(), host=host)
                waiting += [page.following] if page.following else []
                for product, shop, name, price in page.cards:
                    if product not in found:
                        found[product] = [name, price]
                        waiting += addresses(product, shop)
                if page.headers["content-type"] == "application/json":
                    found[page.json.get("product_id") or page.json["id"]].append(page.json)

        truth = client.sim.all_truth()
        assert found.keys() == truth.keys()
        for product, (name, price, *documents) in found.items():
            one = truth[product]
            assert [name, price] == [one.detail["name"], one.detail["price"]]
            assert len(documents) == 3
            assert all(document in documents for document in (one.mini_shop, one.detail, one.options))
        report = client.sim.report()
        assert (report.broken, report.smallest_gap_ms) == (0, 2_000)
        assert report.calls == sum(host.calls for host in report.hosts) > 3 * 60
        assert report.by_route["detail"] == report.by_route["option"] == report.by_route["mini_shop"] == 60


async def test_pages_of_a_search_contain_all_results_in_order():
    async with simulated() as client:
        for keyword in client.sim.world.keywords:
            pages = await listing(client, keyword)
            shown = [card[0] for page in pages for card in page.cards]
            world = client.sim.world
            assert shown == [product.id for product in world.at(world.listing(0, keyword)[0])]
            assert [len(page.cards) for page in pages[:-1]] == [SMALL.per_page] * (len(pages) - 1)
            assert f"{len(shown)} products" in pages[0].text


async def test_a_search_that_finds_nothing_is_an_empty_page():
    async with simulated() as client:
        for path in ("/search?q=unheard-of", "/search?q=lantern&page=99"):
            got = await client.get(path)
            assert (got.status, got.cards, got.following) == (200, [], None)
        for path in ("/search", "/search?q=", "/search?q=lantern&page=0", "/search?q=lantern&page=x"):
            assert (await client.get(path)).status == 400


async def test_discontinued_and_unknown_products_are_distinguished():
    async with simulated(world=WorldShape(products=40, hosts=2)) as client:
        mine, other = (next(one for one in client.sim.world.products() if one.host == host) for host in (0, 1))
        assert [(await client.get(path)).status for path in addresses(mine.id, mine.shop_id)] == [200] * 3
        assert [(await client.get(path)).status for path in addresses(other.id, other.shop_id)] == [404] * 3
        assert [(await client.get(path, host=1)).status for path in addresses(other.id, other.shop_id)] == [200] * 3
        assert (await client.get(f"/api/shops/{mine.shop_id + 2}/mini?product={mine.id}")).status == 404
        for path in ("/api/products/1", "/api/products/x", "/nothing", "/products/1", "/shops/1"):
            assert (await client.get(path)).status == 404

        client.sim.world.vanish(mine.id)
        assert [(await client.get(path)).status for path in addresses(mine.id, mine.shop_id)] == [410] * 3
        assert (await client.get("/search?q=lantern", method="POST")).status == 405


async def test_links_of_a_listing_have_targets():
    async with simulated() as client:
        product = next(client.sim.world.products())
        for path in ("/", f"/products/{product.id}?src=search", f"/shops/{product.shop_id}", "/cart/help", "/account"):
            got = await client.get(path)
            assert (got.status, got.headers["content-type"]) == (200, "text/html; charset=utf-8")


async def test_unchanged_pages_are_answered_with_304_by_either_validator():
    async with simulated() as client:
        product = next(client.sim.world.products())
        paths = ["/search?q=lantern", *addresses(product.id, product.shop_id)]
        for path in paths:
            first = await client.get(path)
            by_tag = await client.get(path, If_None_Match=first.headers["etag"])
            by_time = await client.get(path, If_Modified_Since=first.headers["last-modified"])
            assert (by_tag.status, by_tag.body, by_time.status) == (304, b"", 304)
            assert by_tag.headers["etag"] == first.headers["etag"]
            assert (await client.get(path, If_None_Match='"other"', If_Modified_Since="x")).status == 200
            assert (await client.get(path, If_Modified_Since="yesterday")).status == 200

        before = [await client.get(path) for path in paths]
        client.sim.world.change(product.id)
        for path, had in zip(paths, before, strict=True):
            by_tag = await client.get(path, If_None_Match=had.headers["etag"])
            by_time = await client.get(path, If_Modified_Since=had.headers["last-modified"])
            assert (by_tag.status, by_time.status) == (200, 200)
            assert by_tag.body == by_time.body != had.body
        assert client.sim.report().not_modified == 8


@pytest.mark.parametrize("validator", ["etag", "last-modified"])
async def test_a_client_that_reads_only_changes_has_the_true_data_after_every_step(validator: str):
    lively = WorldShape(
        products=30,
        keywords=3,
        per_page=5,
        appear=0.1,
        vanish=0.1,
        reprice=0.1,
        redescribe=0.2,
        restock=0.2,
        resettle=0.3,
    )
    async with simulated(world=lively) as client:
        kept: dict[str, Got] = {}

        async def read(path: str) -> Got:
            known = kept[path].headers[validator] if path in kept else None
            by_tag, by_time = (known, None) if validator == "etag" else (None, known)
            got = await client.get(path, If_None_Match=by_tag, If_Modified_Since=by_time)
            kept[path] = kept[path] if got.status == 304 else got
            return kept[path]

        for _ in range(4):
            found: dict[int, list[object]] = {}
            for keyword in client.sim.world.keywords:
                page = await read(f"/search?q={quote_plus(keyword)}")
                shown = page.cards
                while page.following is not None:
                    page = await read(page.following)
                    shown += page.cards
                for product, shop, _name, price in shown:
                    found[product] = [price, *[(await read(path)).json for path in addresses(product, shop)]]

            truth = client.sim.all_truth().items()
            assert found == {
                product: [one.detail["price"], one.mini_shop, one.detail, one.options] for product, one in truth
            }
            client.sim.world.advance()
        assert client.sim.report().not_modified > 60


async def test_a_removed_product_disappears_from_its_listing_immediately():
    async with simulated() as client:
        before = await client.get("/search?q=lantern")
        client.sim.world.vanish(before.cards[0][0])
        after = await client.get("/search?q=lantern", If_None_Match=before.headers["etag"])
        assert (after.status, after.cards[:-1]) == (200, before.cards[1:])
        late = await client.get("/search?q=lantern", If_Modified_Since=before.headers["last-modified"])
        assert late.body == after.body


async def test_a_change_elsewhere_does_not_change_a_page():
    async with simulated() as client:
        one, other = list(client.sim.world.products())[:2]
        paths = addresses(one.id, one.shop_id)
        tags = [(await client.get(path)).headers["etag"] for path in paths]
        client.sim.world.change(other.id)
        client.sim.world.vanish(other.id)
        got = [await client.get(path, If_None_Match=tag) for path, tag in zip(paths, tags, strict=True)]
        assert [answer.status for answer in got] == [304] * 3


async def test_without_validators_every_page_is_sent_again():
    async with simulated(behaviour=Behaviour(validators=False)) as client:
        first = await client.get("/search?q=lantern")
        assert "etag" not in first.headers
        assert (await client.get("/search?q=lantern", If_None_Match="*")).status == 200


async def test_noise_changes_every_answer_and_nothing_else():
    async with simulated(behaviour=Behaviour(noise=True)) as client:
        product = next(client.sim.world.products())
        for path in ("/search?q=lantern", *addresses(product.id, product.shop_id)):
            first, second = await client.get(path), await client.get(path)
            assert first.body != second.body
            assert first.headers["etag"] == second.headers["etag"]
        document = (await client.get(f"/api/products/{product.id}")).json
        assert document.pop("trace_id")
        assert document == client.sim.truth(product.id).detail


async def test_bodies_are_compressed_for_clients_that_accept_it():
    async with simulated() as client:
        packed = await client.get("/search?q=lantern", Accept_Encoding="gzip")
        plain = await client.get("/search?q=lantern", Accept_Encoding="identity")
        assert (packed.headers.get("content-encoding"), plain.headers.get("content-encoding")) == ("gzip", None)
        assert int(packed.headers["content-length"]) < len(plain.body) / 3
        assert packed.body == plain.body


async def test_the_control_api_reads_and_advances_the_world():
    async with simulated() as client:
        world = (await client.get("/admin/world")).json
        assert (world["step"], world["products"], world["keywords"]) == (0, 60, client.sim.world.keywords)
        product = next(client.sim.world.products())
        assert (await client.post(f"/admin/change/{product.id}")).json == {"step": 1}
        assert (await client.post("/admin/advance", steps=3)).json == {"step": 4}
        parts = [(await client.get(f"/admin/truth?offset={offset}&limit=25")).json for offset in (0, 25, 50)]
        told = {one["product_id"]: one for part in parts for one in part["products"]}
        assert told.keys() == client.sim.all_truth().keys()
        assert (await client.get(f"/admin/truth/{product.id}")).json == told[product.id]

        assert (await client.post(f"/admin/vanish/{product.id}")).status == 200
        assert (await client.get(f"/admin/truth/{product.id}")).status == 404
        assert (await client.post("/admin/advance", steps=-1)).status == 400
        assert (await client.get("/admin/truth?limit=x")).status == 400
        assert [one["name"] for one in (await client.get("/admin/identities")).json] == [
            f"identity-{number}" for number in range(4)
        ]
        assert client.sim.report().calls == 0, "nothing of this is counted"


async def test_steps_can_be_automatic():
    async with simulated(world=WorldShape(products=60, steps_every_s=10)) as client:
        await client.get("/")
        client.ticks.advance(35)
        await client.get("/")
        assert client.sim.report().step == 3
        other = World(WorldShape(products=60, steps_every_s=10))
        other.advance(3)
        assert [one.id for one in other.products()] == [one.id for one in client.sim.world.products()]

        client.ticks.advance(1_000_000)
        assert (await client.get("/")).status == 200, "a long silence is caught up with, as far as that makes sense"
        assert client.sim.report().step == 1_003


async def test_the_answer_contains_the_true_data_byte_for_byte():
    async with simulated() as client:
        product = next(client.sim.world.products())
        got = await client.get(f"/api/products/{product.id}/options")
        assert json.loads(got.body) == client.sim.truth(product.id).options
        assert json.dumps(got.json, separators=(",", ":"), ensure_ascii=False).encode() == got.body
