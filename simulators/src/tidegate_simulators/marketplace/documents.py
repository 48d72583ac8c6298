"""The documents of a product: three, each a function of the seed and of the steps of their last changes."""

from typing import Any

import msgspec

from tidegate_simulators.draws import draw, pick
from tidegate_simulators.marketplace.world import Product, World, shop_id

_OFFER, _DETAIL, _OPTIONS, _SHOP, _SHOP_NAME, _VARIANT = range(21, 27)
_ADJECTIVES = (
    "Brass",
    "Tarred",
    "Folding",
    "Galvanised",
    "Hand-made",
    "Ölfeste",
    "Braided",
    "Storm-proof",
    "Mini",
    "XL",
)
_BRANDS = ("Neap & Sons", "Fjørd", "Quay", "Weir's", "Undertow", "Tidemark", "Océan", "海")
_CATEGORIES = ("Deck", "Galley", "Navigation", "Clothing", "Safety", "Cabin")
_COLOURS = ("red", "navy", "sand", "white", "black", "olive")
_SIZES = ("S", "M", "L", "XL", "10 m", "25 m", "one size")
_GRADES = ("new", "good", "power", "premium")
_MATERIALS = ("brass", "hemp", "steel", "cotton", "teak", "nylon")
_SENTENCES = (
    "Made for decks that are never dry.",
    'The "old" pattern, with one knot less.',
    "Weight < 2 kg & length > 3 m.",
    "Rinse with fresh water after use.",
    "Größe und Länge wie angegeben.",
    "海でも陸でも使えます。",
    "Two years of warranty, salt excluded.",
)
CURRENCY = "EUR"


class ProductTruth(msgspec.Struct, frozen=True):
    """What a product is now: the documents as an honest answer has them, and where they are found."""

    product_id: int
    shop_id: int
    host: int
    """The number of its host, from 0."""
    keywords: list[str]
    mini_shop: dict[str, Any]
    detail: dict[str, Any]
    options: dict[str, Any]


class Offer(msgspec.Struct, frozen=True, gc=False):
    """What a listing shows of a product."""

    name: str
    price: int
    """In cents, as all amounts."""
    list_price: int
    is_sold_out: bool


class Documents:
    """Every document of one world."""

    def __init__(self, world: World) -> None:
        self._world, self._seed = world, world.shape.seed

    def truth(self, product: Product) -> ProductTruth:
        """All there is to know of a product."""
        return ProductTruth(
            product_id=product.id,
            shop_id=product.shop_id,
            host=product.host,
            keywords=self._world.keywords_of(product),
            mini_shop=self.mini_shop(product),
            detail=self.detail(product),
            options=self.options(product),
        )

    def offer(self, product: Product) -> Offer:
        """Return name and price of an offer."""
        lot, now = product.lot, draw(product.lot + _OFFER, product.offered)
        base = 500 + lot % 40_000
        price = base * (70 + now % 61) // 100
        name = f"{pick(_ADJECTIVES, lot >> 20)} {self._world.keywords[product.keyword]} No. {lot >> 30 & 1_023}"
        return Offer(name, price, max(base, price), (now >> 20) % 25 == 0)

    def mini_shop(self, product: Product) -> dict[str, Any]:
        """The shop as it is shown beside a product."""
        offer = self.offer(product)
        return {
            "product_id": product.id,
            "name": offer.name,
            "price": offer.price,
            "list_price": offer.list_price,
            "currency": CURRENCY,
            "shop": self._shop(product.shop, product.settled),
        }

    def detail(self, product: Product) -> dict[str, Any]:
        """Everything but its options."""
        offer, fixed = self.offer(product), product.lot
        lot = draw(fixed + _DETAIL, product.described)
        sentences = [pick(_SENTENCES, lot >> shift) for shift in range(0, 8 + 8 * (lot % 4), 8)]
        return {
            "id": product.id,
            "shop_id": product.shop_id,
            "name": offer.name,
            "brand": pick(_BRANDS, fixed >> 8),
            "category": [pick(_CATEGORIES, fixed >> 12), self._world.keywords[product.keyword]],
            "price": offer.price,
            "list_price": offer.list_price,
            "currency": CURRENCY,
            "sold_out": offer.is_sold_out,
            "description": " ".join(sentences),
            "images": [f"/images/{product.id}/{number}.jpg" for number in range(1 + fixed % 4)],
            "attributes": {"material": pick(_MATERIALS, fixed >> 16), "weight_g": 50 + lot % 4_000},
            "rating": (10 + (lot >> 12) % 41) / 10,
            "reviews": (lot >> 24) % 3_000,
            "shipping": {"fee": (lot >> 36) % 6 * 100, "days": 1 + (lot >> 40) % 5},
        }

    def options(self, product: Product) -> dict[str, Any]:
        """What one can choose between; a few products have nothing to choose."""
        lot = draw(product.lot + _OPTIONS, product.stocked)
        many = (lot % 8) + (lot >> 8) % 3
        return {"product_id": product.id, "options": [self._option(product, number) for number in range(many)]}

    def _option(self, product: Product, number: int) -> dict[str, Any]:
        # Colour and size stay with the number; stock and surcharge change.
        fixed = draw(product.lot + _VARIANT, number)
        lot = draw(product.lot + _VARIANT, number, product.stocked)
        return {
            "id": product.id * 100 + number,
            "name": f"{pick(_COLOURS, fixed)} / {pick(_SIZES, fixed >> 8)}",
            "extra_price": lot % 5 * 50,
            "stock": (lot >> 8) % 200 if lot >> 20 & 7 else 0,
        }

    def _shop(self, shop: int, settled: int) -> dict[str, Any]:
        fixed, lot = draw(self._seed, _SHOP_NAME, shop), draw(self._seed, _SHOP, shop, settled)
        return {
            "id": shop_id(shop),
            "name": f"{pick(_BRANDS, fixed)} {pick(_CATEGORIES, fixed >> 8)} {shop}",
            "grade": pick(_GRADES, fixed >> 16),
            "rating": (10 + lot % 41) / 10,
            "followers": (lot >> 8) % 50_000,
        }
