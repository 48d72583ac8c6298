"""The large fields of a document: lists of things, written once at the start, each exactly as long as it is to be."""

from collections.abc import Iterator
from hashlib import shake_128
from itertools import count
from struct import iter_unpack

_WORDS = (
    "Anchor", "Beacon", "Brine", "Cove", "Delta", "Ebb", "Fjord", "Gale", "Größe", "Harbour", "Island", "Keel",
    "Lagoon", "Moor", "Neap", "Océan", "Pier", "Quay", "Reef", "Shoal", "Strait", "Surge", "Tide", "Undertow",
    "Vigo", "Wake", "Weir", "Yawl", "潮", "海", "Zephyr", "Øy",
)  # fmt: skip
_GRADES = ("common", "rare", "epic", "unique", "legendary", "ancient", "relic", "mythic")
_REMARK = '{{"id":{id},"remark":"'
_REMARK_END = b'"}]'
_FILLING = b"The tide comes in and the tide goes out, and whoever watches it long enough stops counting. "

_GEAR = (
    '{{"id":{id},"slot":{tiny},"name":"{word} of the {other}","grade":"{grade}","level":{small},"attack":{large},'
    '"defence":{medium},"options":[{{"kind":"{grade}","value":{tiny}}},{{"kind":"{other}","value":{small}}}],'
    '"bound":{truth},"obtained_at":"{moment}"}}'
)
_SKILL = '{{"id":{id},"name":"{word} {other}","level":{small},"damage":{large},"cooldown_s":{tiny},"active":{truth}}}'
_TITLE = '{{"id":{id},"title":"{other} of {word}","grade":"{grade}","received_at":"{moment}"}}'
_ACHIEVEMENT = (
    '{{"id":{id},"name":"{word}: {other}","grade":"{grade}","points":{small},"progress":{medium},"goal":{large},'
    '"description":"Sail from {other} to {word} {tiny} times without losing a hand.","achieved_at":"{moment}"}}'
)
_QUEST = (
    '{{"id":{id},"chapter":{small},"name":"The {word} and the {other}","giver":"{other}","state":"{grade}",'
    '"reward":{{"gold":{large},"experience":{huge},"item_id":{large}}},"steps":[{tiny},{small},{medium}],'
    '"begun_at":"{moment}","finished":{truth}}}'
)
_BEAST = '{{"id":{id},"beast":"{other} {word}","kills":{medium},"first_seen_at":"{moment}","damage_taken":{huge}}}'
_EVENT = (
    '{{"id":{id},"at":"{moment}","kind":"{grade}","text":"{word} was traded for {tiny} {other} at the {word}",'
    '"balance":{huge},"world":{small},"position":[{medium},{large}]}}'
)
_THINGS = {
    "weapons": _GEAR,
    "armour": _GEAR,
    "jewellery": _GEAR,
    "skills": _SKILL,
    "titles": _TITLE,
    "cards": _SKILL,
    "achievements": _ACHIEVEMENT,
    "quests": _QUEST,
    "bestiary": _BEAST,
    "chronicle": _EVENT,
}
FIELDS = tuple(_THINGS)


def section(seed: int, field: str, variant: int, size: int) -> bytes:
    """`,"field":[…]` in exactly `size` bytes, different for each variant."""
    lots = _lots(f"{seed}/{field}/{variant}")
    begin = f',"{field}":['.encode()
    closing = _REMARK.format(id=next(lots) % 10_000).encode()
    room = size - len(begin) - len(closing) - len(_REMARK_END)
    things: list[bytes] = []
    while True:
        thing = _thing(_THINGS[field], lots)
        if len(thing) > room:
            break
        things.append(thing)
        room -= len(thing)
    filling = (_FILLING * (room // len(_FILLING) + 1))[: max(0, room)]
    made = begin + b"".join(things) + closing + filling + _REMARK_END
    assert len(made) == size, f"a section of {field} cannot have {size} bytes"
    return made


def _thing(template: str, lots: Iterator[int]) -> bytes:
    lot, more = next(lots), next(lots)
    filled = template.format(
        id=lot % 10_000,
        word=_WORDS[more & 31],
        other=_WORDS[more >> 5 & 31],
        grade=_GRADES[more >> 10 & 7],
        tiny=more >> 13 & 15,
        small=(more >> 17) % 100,
        medium=lot % 4_000,
        large=lot % 50_000,
        huge=lot % 900_000 * 1_000,
        truth="true" if more >> 31 else "false",
        moment=f"202{more >> 20 & 3}-{1 + lot % 12:02}-{1 + more % 28:02}T{lot % 24:02}:{more % 60:02}:{lot % 60:02}Z",
    )
    return filled.encode() + b","


def _lots(label: str) -> Iterator[int]:
    """Numbers below 2**32 without end, always the same for a label."""
    for block in count():
        for (lot,) in iter_unpack("<I", shake_128(f"{label}/{block}".encode()).digest(1_024)):
            yield lot
