"""The keys of one shard of the gate: a fixed handful, whatever the number of users."""

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
    """The gate's own keys, with the stream it lets jobs into and the wakeup it rings, all of one unit."""
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
    """Gone when the server lost its data: then everything unfinished must be offered again."""
    return unit.key("gate:epoch")


def promise_keys(unit: Unit) -> tuple[Key, Key]:
    """Where promises to offer wait to be kept, and how often each was looked after."""
    return unit.key("gate:promises"), unit.key("gate:looks")
