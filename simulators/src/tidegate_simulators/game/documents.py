"""The data of a character as JSON: a small individual part, and large parts chosen from a prepared set.

A document is about 300 KB, of which the fields in `KEPT_FIELDS` (about 17 KB) are worth keeping: they depend on the id
and the version alone. The others are ballast, and `meta` differs in every answer, so a hash over everything tells
nothing.
"""

from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from tidegate_simulators.game import packing
from tidegate_simulators.game.names import name_of
from tidegate_simulators.game.sections import section
from tidegate_simulators.game.world import Lots, State, World

OWN_FIELDS = ("id", "name", "realm", "version", "profile", "stats")
_SLOTS = (
    ("weapons", "armour"),
    ("achievements", "quests"),
    ("jewellery", "skills"),
    ("bestiary", "chronicle"),
    ("titles", "cards"),
)
"""Fields that are chosen together. What is kept lies scattered among what is not."""
_KEPT_SLOTS = (0, 2, 4)
_LAST_DROPPED_SLOT = 3
KEPT_FIELDS = OWN_FIELDS + tuple(field for slot in _KEPT_SLOTS for field in _SLOTS[slot])
_VARIANTS = 16
_DROPPED_VARIANTS = 4
_REALMS = (b"Aurora", b"Borea", b"Croa", b"Elysium", b"Luna", b"Nova", b"Scania", b"Union")
_CLASSES = (b"navigator", b"harpooner", b"shipwright", b"cartographer", b"diver", b"signaller", b"cook", b"corsair")
_OWN_SIZE = 640
"""What the character's own part takes. It is filled up with spaces, so that it is as long in every document."""
_OWN = (
    b',"id":%d,"name":"%b","realm":"%b","version":%d,"profile":{"class":"%b","experience":%d,"gold":%d,"popularity":%d},'
    b'"stats":{"strength":%d,"dexterity":%d,"intelligence":%d,"luck":%d,"health":%d,"mana":%d,"attack":%d,"defence":%d},'
    b'"meta":{"served_at_ms":%d,"changed_at_ms":%d}'
)


class _Part(NamedTuple):
    plain: bytes
    packed: bytes
    packed_size: int
    contribution: int
    """To the checksum of the whole."""


class Documents:
    """Every document of one world. Making the stock takes a moment; each document then costs next to nothing."""

    def __init__(self, world: World) -> None:
        self._world, shape = world, world.shape
        self._stock = _stock(shape.seed, shape.body_bytes, shape.kept_bytes)
        """The parts for each slot."""
        self._size = shape.body_bytes

    def plain(self, state: State, served_ms: int = 0) -> tuple[list[bytes], int]:
        """The document of a character as it is, in pieces, and its size."""
        own, parts = self._make(state, served_ms)
        return [*[part.plain for part in parts], own], self._size

    def gzipped(self, state: State, served_ms: int = 0) -> tuple[list[bytes], int]:
        """The document of a character as one gzip stream, in pieces, and its size."""
        own, parts = self._make(state, served_ms)
        checksum, size = crc32(own), _OWN_SIZE + packing.AROUND_THE_LAST
        pieces: list[bytes] = []
        for _, packed, packed_size, contribution in parts:
            pieces.append(packed)
            size += packed_size
            checksum ^= contribution
        pieces.append(packing.last(own, checksum, self._size))
        return pieces, size

    def kept(self, state: State) -> dict[str, Any]:
        """What an honest extraction of a character's document has."""
        return extract_kept(b"".join(self.plain(state)[0]))

    def _make(self, state: State, served_ms: int) -> tuple[bytes, list[_Part]]:
        """The character's own part, and the stock's for it: the kept ones change with its version."""
        lots = self._world.content(state.subject, state.version)
        first, second, third, fourth, fifth = self._stock
        kept, fixed = lots[15], state.lots[3]
        parts = [
            first[kept & 15],
            second[fixed & 15],
            third[kept >> 4 & 15],
            fourth[fixed >> 4 & 15],
            fifth[kept >> 28],
        ]
        return _own(state, lots, served_ms), parts


def _own(state: State, lots: Lots, served_ms: int) -> bytes:
    """The end of the document."""
    subject, kind = state.subject, state.lots[4]
    filled = _OWN % (
        subject,
        name_of(subject).encode(),
        _REALMS[kind & 7],
        state.version,
        _CLASSES[kind >> 3 & 7],
        *lots[:11],
        served_ms,
        state.changed_ms,
    )
    return filled.ljust(_OWN_SIZE - 1) + b"}"


@lru_cache(maxsize=4)
def _stock(seed: int, body_bytes: int, kept_bytes: int) -> list[list[_Part]]:
    """The parts for each slot, all of one length within it."""
    kept = (kept_bytes - _OWN_SIZE) // len(_KEPT_SLOTS)
    dropped = (body_bytes - kept_bytes) // (len(_SLOTS) - len(_KEPT_SLOTS))
    sizes = [kept if slot in _KEPT_SLOTS else dropped for slot in range(len(_SLOTS))]
    sizes[_LAST_DROPPED_SLOT] += body_bytes - _OWN_SIZE - sum(sizes)
    following = body_bytes
    stock: list[list[_Part]] = []
    for slot, (fields, size) in enumerate(zip(_SLOTS, sizes, strict=True)):
        following -= size
        variants = _VARIANTS if slot in _KEPT_SLOTS else _DROPPED_VARIANTS
        texts = [_sections(seed, fields, variant, size) for variant in range(variants)]
        stock.append([_part(text, slot, following) for text in texts] * (_VARIANTS // variants))
    return stock


def _sections(seed: int, fields: tuple[str, ...], variant: int, size: int) -> bytes:
    """One variant of the fields of a slot, in exactly `size` bytes."""
    each = size // len(fields)
    first = [section(seed, field, variant, each) for field in fields[:-1]]
    return b"".join(first) + section(seed, fields[-1], variant, size - each * len(first))


def _part(text: bytes, slot: int, following: int) -> _Part:
    """A part for a slot after which so many bytes follow."""
    if slot == 0:
        text = b"{" + text.removeprefix(b",")
    packed = packing.compressed(text, is_first=slot == 0)
    return _Part(text, packed, len(packed), packing.shifted(crc32(text), following))


def extract_kept(document: bytes) -> dict[str, Any]:
    """The fields of a document that are worth keeping."""
    everything = msgspec.json.decode(document, type=dict[str, Any])
    return {field: everything[field] for field in KEPT_FIELDS}
