"""The keys of one shard of the gate; their number is fixed."""

from typing import TypedDict

from tidegate.storage.valkey import Key, Unit


class GateKeys(TypedDict):
    """One field for each `---@key` of `_keys.lua`."""

    waiting: Key
    turns: Key
    jobs: Key
    permits: Key
    credentials: Key
    pools: Key
    due: Key
    stream: Key
    wake: Key


def gate_keys(unit: Unit, *, stream: Key, wake: Key) -> GateKeys:
    """The keys of the gate, with its job stream and the wake-up of its timekeeper, all of one unit."""
    return GateKeys(
        waiting=unit.key("gate:waiting"),
        turns=unit.key("gate:turns"),
        jobs=unit.key("gate:jobs"),
        permits=unit.key("gate:permits"),
        credentials=unit.key("gate:credentials"),
        pools=unit.key("gate:pools"),
        due=unit.key("gate:due"),
        stream=stream,
        wake=wake,
    )


def epoch_key(unit: Unit) -> Key:
    """A key that is missing after the server lost its data: then all unfinished jobs must be enqueued again."""
    return unit.key("gate:epoch")


def promise_keys(unit: Unit) -> tuple[Key, Key]:
    """The keys of enqueue intents: their expiry, and the number of checks of each."""
    return unit.key("gate:promises"), unit.key("gate:looks")
