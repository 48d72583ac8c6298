"""The keys of a room: one unit, since every step of the line is atomic."""

from typing import TypedDict

from tidegate.storage.valkey import Key, Valkey


class RoomKeys(TypedDict):
    """Where one room lives."""

    book: Key
    """hash: the room's rules as SQL has them, and its counters. Without an epoch in it the room is lost."""
    waiting: Key
    """zset: user scored by place."""
    entering: Key
    """zset: user scored by when somebody else settles the admission, in ms."""
    entries: Key
    """hash: user -> admission|place|last sign of life."""
    active: Key
    """zset: user scored by the end of the session, in ms."""
    admissions: Key
    """hash: user -> admission, of those who are inside."""
    guests: Key
    """set: those inside or on the way who do not count against the capacity."""
    seen: Key
    """string: four bytes for each arrival number, the second in which its owner was last seen."""
    chunks: Key
    """zset: a thousand arrival numbers, scored by when the first of them can have been silent too long, in ms."""
    log: Key
    """stream: every step, where the room keeps a log."""
    moves: Key
    """stream: the last steps by which the line got shorter; whoever follows it reads here."""
    wake: Key
    """list: the wakeup of the room's keeper, at most one token."""


def room_keys(valkey: Valkey, room: str) -> RoomKeys:
    """Those of the room with this name."""
    unit = valkey.unit(f"room:{room}")
    return RoomKeys(
        book=unit.key("book"),
        waiting=unit.key("waiting"),
        entering=unit.key("entering"),
        entries=unit.key("entries"),
        active=unit.key("active"),
        admissions=unit.key("admissions"),
        guests=unit.key("guests"),
        seen=unit.key("seen"),
        chunks=unit.key("chunks"),
        log=unit.key("log"),
        moves=unit.key("moves"),
        wake=unit.key("wake"),
    )


def new_rooms(valkey: Valkey) -> Key:
    """Where the leader hears that there is a new room."""
    return valkey.unit("rooms").key("created")
