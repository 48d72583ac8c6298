"""The built-in site reads what the simulator's marketplace really serves."""

from functools import cache

import msgspec
import pytest

from tidegate.systems.crawl import raws
from tidegate.systems.crawl.marketplace import MarketplaceSite
from tidegate.systems.crawl.site import Challenged, Unreadable
from tidegate.systems.crawl.stages import STAGES, Stage
from tidegate_simulators.http_server import Request
from tidegate_simulators.marketplace import Behaviour, Product, World, WorldShape, pages
from tidegate_simulators.marketplace.answers import Answers, asked
from tidegate_simulators.marketplace.documents import Documents

SITE = MarketplaceSite()


class Market:
    """A marketplace that answers without a network."""

    def __init__(self, *, noise: bool = False) -> None:
        self.world = World(WorldShape(products=120, keywords=20, per_page=5))
        self.documents = Documents(self.world)
        self._answers = Answers(self.world, self.documents, Behaviour(noise=noise, compress=False))

    def get(self, address: str) -> bytes:
        path, _, query = address.encode().partition(b"?")
        reply = self._answers.answer(0, Request(b"GET", path, query, {}, takes_gzip=False), asked(path))
        assert reply.status == 200, address
        return reply.body

    def page(self, stage: Stage, product: Product) -> bytes:
        return self.get(SITE.path(stage, str(product.id), str(product.shop_id)))


@cache
def market() -> Market:
    return Market()


@pytest.mark.parametrize("keyword", World(WorldShape(products=1)).keywords)
def test_every_page_of_a_listing_is_read_to_the_last_product(keyword: str):
    found, page, world = list[tuple[str, str]](), 1, market().world
    while page is not None:
        listing = SITE.read_listing(market().get(SITE.search_path(keyword, page)))
        found += [(one.product_id, one.shop_id) for one in listing.products]
        assert listing.next_page in (None, page + 1)
        page = listing.next_page
    rows, _ = world.listing(0, keyword)
    assert found == [(str(product.id), str(product.shop_id)) for product in world.at(rows)]
    assert found


def test_a_search_without_results_is_an_empty_listing():
    listing = SITE.read_listing(market().get(SITE.search_path("nothing", 1)))
    assert (listing.products, listing.next_page) == ([], None)


def test_extracted_data_equals_the_true_data():
    for product in market().world.products():
        truth = market().documents.truth(product)
        parts = [SITE.extract(stage, str(product.id), market().page(stage, product)) for stage in STAGES]
        assert parts == [truth.mini_shop, truth.detail, truth.options]


def test_noise_in_a_page_does_not_change_its_hash():
    noisy = Market(noise=True)
    product = next(noisy.world.products())
    for stage in STAGES:
        first, second = noisy.page(stage, product), noisy.page(stage, product)
        assert first != second
        assert _hash(stage, product, first) == _hash(stage, product, second)
    keyword = noisy.world.keywords[0]
    listings = [SITE.read_listing(noisy.get(SITE.search_path(keyword, 1))) for _ in range(2)]
    assert listings[0] == listings[1]


def test_a_change_changes_the_hash_of_what_changed():
    changing = Market()
    product = next(changing.world.products())
    before = [_hash(stage, product, changing.page(stage, product)) for stage in STAGES]
    changing.world.change(product.id)
    after = [_hash(stage, product, changing.page(stage, product)) for stage in STAGES]
    assert all(old != new for old, new in zip(before, after, strict=True))


def _hash(stage: Stage, product: Product, body: bytes) -> str:
    return raws.digest(raws.as_text(SITE.extract(stage, str(product.id), body)).encode())


@pytest.mark.parametrize("missing", [2, 10, 200, 2_000])
def test_a_truncated_page_is_not_accepted_as_complete(missing: int):
    listing = market().get(SITE.search_path(market().world.keywords[0], 1))
    with pytest.raises(Unreadable):
        SITE.read_listing(listing[:-missing])
    product = next(market().world.products())
    for stage in STAGES:
        with pytest.raises(Unreadable):
            SITE.extract(stage, str(product.id), market().page(stage, product)[:-missing])


def test_a_captcha_is_distinguished_from_other_pages():
    product = str(next(market().world.products()).id)
    with pytest.raises(Challenged):
        SITE.read_listing(pages.CAPTCHA)
    with pytest.raises(Unreadable, match="not a listing"):
        SITE.read_listing(pages.BUSY)
    for stage in STAGES:
        with pytest.raises(Challenged):
            SITE.extract(stage, product, pages.CAPTCHA)
        with pytest.raises(Unreadable):
            SITE.extract(stage, product, pages.BUSY)
        with pytest.raises(Unreadable):
            SITE.extract(stage, product, b'{"code":"BUSY","data":null}')


def test_the_page_of_another_product_is_refused():
    one, other, *_ = market().world.products()
    for stage in STAGES:
        with pytest.raises(Unreadable, match=f"about product {other.id}"):
            SITE.extract(stage, str(one.id), market().page(stage, other))


def test_stored_data_is_restored_unchanged():
    for body in (b"", b"x", b"x" * 10_000, b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd" * 1_000, bytes(range(256)) * 9):
        assert raws.unpack(raws.pack(body)) == body
    assert len(raws.pack(b"x" * 10_000)) < 100
    assert raws.as_text({"b": 1, "a": {"d": 1, "c": 2}}) == raws.as_text({"a": {"c": 2, "d": 1}, "b": 1})
    assert msgspec.json.decode(raws.as_text({"b": 1.5})) == {"b": 1.5}


def test_a_product_with_unreadable_ids_affects_only_itself():
    page = market().get(SITE.search_path(market().world.keywords[0], 1))
    first, second, *rest = SITE.read_listing(page).products
    spoilt = page.replace(b'data-product-id="%s"' % first.product_id.encode(), b'data-product-id=""')
    spoilt = spoilt.replace(
        b'data-product-id="%s" data-shop-id="%s"' % (second.product_id.encode(), second.shop_id.encode()),
        b'data-product-id="%s"' % second.product_id.encode(),
    )
    listing = SITE.read_listing(spoilt)

    assert listing.products == rest
    assert len(listing.skipped) == 2


def test_an_unreadable_option_affects_only_itself():
    product = next(one for one in market().world.products() if market().documents.truth(one).options["options"])
    body = msgspec.json.decode(market().page(Stage.OPTION, product))
    whole = SITE.extract(Stage.OPTION, str(product.id), msgspec.json.encode(body))
    spoilt = {**body, "options": [None, *body["options"], {"id": "x"}]}

    assert SITE.extract(Stage.OPTION, str(product.id), msgspec.json.encode(spoilt)) == {**whole, "skipped_options": 2}
