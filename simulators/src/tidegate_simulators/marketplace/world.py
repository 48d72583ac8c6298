"""The products at this step. The same seed and steps produce the same world, byte for byte.

Of a product only the steps are kept in which its parts last changed; what it is follows from the seed and these.
"""

import random
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidegate_simulators.draws import draw, fraction
from tidegate_simulators.errors import NotFound
from tidegate_simulators.marketplace.config import MOST_PRODUCTS, WorldShape
from tidegate_simulators.validation import require_whole

_MOST_INDEXES = 1 << 30
_FIRST_ID = 2_000_000_000
_FIRST_SHOP = 500_000
# An odd factor makes ids of neighbours far apart, and can be undone.
_FACTOR = 0x2C1B3C6D | 1
_INVERSE = pow(_FACTOR, -1, _MOST_INDEXES)
_LISTED_TWICE, _PRODUCT = 11, 12
_WORDS = (
    "lantern", "rope", "sea salt", "compass", "oilskin", "größe 42", "kettle", "net", "anchor", "chart", "whistle",
    "pump", "varnish", "hammock", "galley", "潮", "sail & mast", "buoy", "tar", "oar",
)  # fmt: skip
_MOST_STEPS_AT_ONCE = 100_000


class Product(NamedTuple):
    """One product as it is now: its identity, and when each part of it last changed."""

    id: int
    row: int
    host: int
    keyword: int
    shop: int
    """The shop's number."""
    offered: int
    described: int
    stocked: int
    settled: int
    """When the shop's figures changed."""
    lot: int
    """64 random bits for what never changes."""

    @property
    def shop_id(self) -> int:
        """By which the shop is known."""
        return shop_id(self.shop)


def shop_id(shop: int) -> int:
    """By which a shop is known."""
    return _FIRST_SHOP + shop


def _id_of(index: int) -> int:
    return _FIRST_ID + (index * _FACTOR & _MOST_INDEXES - 1)


class World:
    """Products that change when a step is made."""

    def __init__(self, shape: WorldShape | None = None) -> None:
        self.shape = shape or WorldShape()
        self.step = 0
        self._hosts, self._keywords = self.shape.hosts, self.shape.keywords
        self._shops = self._hosts * max(1, self.shape.products // self.shape.products_per_shop // self._hosts)
        self.keywords = [self._keyword(number) for number in range(self._keywords)]
        self._numbers = {keyword: number for number, keyword in enumerate(self.keywords)}
        # One entry for each product there ever was.
        self._offered, self._described, self._stocked = array("I"), array("I"), array("I")
        self._lots, self._is_sold = array("Q"), bytearray()
        self._settled = array("I", bytes(4 * self._shops))
        self._listings: list[list[int]] = [[] for _ in range(self._hosts * self._keywords)]
        self._relisted = array("I", bytes(4 * len(self._listings)))
        for _ in range(self.shape.products):
            self._add()
        self.living = self.shape.products

    def advance(self, steps: int = 1) -> None:
        """Let so many steps pass, each with its changes."""
        require_whole("steps", steps, least=0, most=_MOST_STEPS_AT_ONCE)
        for _ in range(steps):
            self.step += 1
            self._change_some(random.Random(f"{self.shape.seed}/{self.step}"))  # noqa: S311

    def change(self, product: int) -> None:
        """A step in which only this product changes, in all its parts."""
        index = self.require(product).row
        self.step += 1
        self._reprice(index)
        self._described[index] = self._stocked[index] = self.step

    def vanish(self, product: int) -> None:
        """A step in which only this product vanishes, for good."""
        index = self.require(product).row
        self.step += 1
        self._remove(index)

    def find(self, product: int) -> Product | None:
        """A product that is for sale, by its id."""
        index = self._index_of(product)
        return self._at(index) if index is not None and self._is_sold[index] else None

    def was_sold(self, product: int, host: int) -> bool:
        """Whether there ever was this product at this host."""
        index = self._index_of(product)
        return index is not None and index % self._hosts == host

    def require(self, product: int) -> Product:
        """A product that is for sale; `NotFound` if it is not."""
        found = self.find(product)
        if found is None:
            raise NotFound("product", product)
        return found

    def products(self) -> Iterator[Product]:
        """Everything that is for sale."""
        return (self._at(index) for index, is_sold in enumerate(self._is_sold) if is_sold)

    def has_shop(self, shop: int, host: int) -> bool:
        """Whether a shop with this id sells at this host."""
        return 0 <= shop - _FIRST_SHOP < self._shops and (shop - _FIRST_SHOP) % self._hosts == host

    def keywords_of(self, product: Product) -> list[str]:
        """By which searches it is found."""
        return [self.keywords[number] for number in self._listed_under(product.row)]

    def listing(self, host: int, keyword: str) -> tuple[list[int], int]:
        """The products (by row) that a search finds, in their order, and when that last changed."""
        number = self._numbers.get(keyword)
        if number is None:
            return [], 0
        place = host * self._keywords + number
        return self._listings[place], self._relisted[place]

    def at(self, indexes: Iterable[int]) -> list[Product]:
        """The products in these rows."""
        return [self._at(index) for index in indexes]

    def _keyword(self, number: int) -> str:
        word, round_ = _WORDS[number % len(_WORDS)], number // len(_WORDS)
        return f"{word} {round_ + 1}" if round_ else word

    def _index_of(self, product: int) -> int | None:
        offset = product - _FIRST_ID
        if not 0 <= offset < _MOST_INDEXES:
            return None
        index = offset * _INVERSE & _MOST_INDEXES - 1
        return index if index < len(self._is_sold) else None

    def _at(self, index: int) -> Product:
        lot, hosts = self._lots[index], self._hosts
        shop = (lot >> 40) % (self._shops // hosts) * hosts + index % hosts
        return Product(
            _id_of(index),
            index,
            index % hosts,
            index // hosts % self._keywords,
            shop,
            self._offered[index],
            self._described[index],
            self._stocked[index],
            self._settled[shop],
            lot,
        )

    def _listed_under(self, index: int) -> list[int]:
        keyword = index // self._hosts % self._keywords
        if self._keywords > 1 and fraction(draw(self.shape.seed, _LISTED_TWICE, index)) < self.shape.listed_twice:
            return [keyword, (keyword + 1) % self._keywords]
        return [keyword]

    def _places_of(self, index: int) -> list[int]:
        return [index % self._hosts * self._keywords + keyword for keyword in self._listed_under(index)]

    def _change_some(self, chance: random.Random) -> None:
        shape = self.shape
        for index in self._some(chance, shape.vanish):
            self._remove(index)
        for index in self._some(chance, shape.reprice):
            self._reprice(index)
        for index in self._some(chance, shape.redescribe):
            self._described[index] = self.step
        for index in self._some(chance, shape.restock):
            self._stocked[index] = self.step
        for shop in range(self._shops):
            if chance.random() < shape.resettle:
                self._settled[shop] = self.step
        for _ in range(_whole(shape.appear * shape.products, chance)):
            if len(self._is_sold) < 2 * MOST_PRODUCTS:
                self._add(chance)
                self.living += 1

    def _some(self, chance: random.Random, share: float) -> list[int]:
        """A share of what is for sale."""
        among = len(self._is_sold)
        drawn = chance.sample(range(among), min(among, _whole(share * among, chance)))
        return [index for index in drawn if self._is_sold[index]]

    def _add(self, chance: random.Random | None = None) -> None:
        index = len(self._is_sold)
        self._is_sold.append(1)
        self._lots.append(draw(self.shape.seed, _PRODUCT, index))
        for changed in (self._offered, self._described, self._stocked):
            changed.append(self.step)
        for place in self._places_of(index):
            listing = self._listings[place]
            listing.insert(len(listing) if chance is None else chance.randint(0, len(listing)), index)
            self._relisted[place] = self.step

    def _remove(self, index: int) -> None:
        self._is_sold[index] = 0
        self.living -= 1
        for place in self._places_of(index):
            self._listings[place].remove(index)
            self._relisted[place] = self.step

    def _reprice(self, index: int) -> None:
        self._offered[index] = self.step
        for place in self._places_of(index):
            self._relisted[place] = self.step


def _whole(number: float, chance: random.Random) -> int:
    """As many as that, and one more as often as the rest says."""
    return int(number) + (chance.random() < number % 1)
