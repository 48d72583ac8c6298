"""Keys of one shard of the gate, typed stubs of its Lua scripts, and enqueue intents. The number of keys is fixed.

Each script is one atomic step on one shard.

An enqueue intent is recorded before jobs are committed, and confirmed after they were enqueued in the gate. An intent
that expires unconfirmed triggers a recovery, because its process may have died between the two steps. The death of a
member process is detected anyway, but commands and processes that have not joined yet also start runs.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import TypedDict, Unpack

from tidegate.core.clock import Clock, milliseconds
from tidegate.core.ids import new_id
from tidegate.primitives.gate.model import CredentialRecord, Job, Settlement
from tidegate.storage.valkey import Key, Unit, Valkey, lua_script


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


def intent_keys(unit: Unit) -> tuple[Key, Key]:
    """The keys of enqueue intents: their expiry, and the number of checks of each."""
    return unit.key("gate:intents"), unit.key("gate:intent_checks")


@lua_script("enqueue.lua")
async def enqueue(
    valkey: Valkey, *, new_jobs: Sequence[Job], now_ms: int | None, **keys: Unpack[GateKeys]
) -> list[int]:
    """Add jobs to their queues."""
    ...


@lua_script("settle.lua")
async def settle(
    valkey: Valkey,
    *,
    group: str,
    results: Sequence[Settlement],
    follow_ups: Sequence[Job],
    now_ms: int | None,
    **keys: Unpack[GateKeys],
) -> list[int]:
    """Acknowledge, record, enqueue follow-ups, dispatch."""
    ...


@lua_script("fire_due.lua")
async def fire_due(valkey: Valkey, *, most: int, now_ms: int | None, **keys: Unpack[GateKeys]) -> list[int]:
    """Do what is due."""
    ...


@lua_script("remove_jobs.lua")
async def remove_jobs(
    valkey: Valkey, *, names: Sequence[str], now_ms: int | None, **keys: Unpack[GateKeys]
) -> list[int]:
    """Remove jobs that wait."""
    ...


@lua_script("register.lua")
async def register(
    valkey: Valkey,
    *,
    credential: str,
    pool: str,
    concurrency: int,
    first: int,
    per_minute: int,
    one_at_a_time: str,
    floor: int,
    floor_share: float,
    window_ms: int,
    patience_ms: int,
    metered: int,
    now_ms: int | None,
    **keys: Unpack[GateKeys],
) -> list[bytes | int]:
    """Add or change a credential."""
    ...


@lua_script("dismiss.lua")
async def dismiss(valkey: Valkey, *, credential: str, now_ms: int | None, **keys: Unpack[GateKeys]) -> int:
    """Take a credential out of its pool."""
    ...


@lua_script("status.lua")
async def status(valkey: Valkey, *, pool: str, now_ms: int | None, **keys: Unpack[GateKeys]) -> bytes:
    """Describe the credentials and queues of a pool."""
    ...


@lua_script("free_permits.lua")
async def free_permits(valkey: Valkey, *, lost: Sequence[str], now_ms: int | None, **keys: Unpack[GateKeys]) -> int:
    """Free permits without a message."""
    ...


@lua_script("dispatch.lua")
async def dispatch(valkey: Valkey, *, pool: str, now_ms: int | None, **keys: Unpack[GateKeys]) -> int:
    """Dispatch what may run in a pool."""
    ...


@lua_script("set_pace.lua")
async def set_pace(
    valkey: Valkey,
    *,
    pool: str,
    bucket: str,
    gap_ms: int,
    one_at_a_time: int,
    pause_ms: int,
    now_ms: int | None,
    **keys: Unpack[GateKeys],
) -> int:
    """Set how fast a bucket may be called."""
    ...


@lua_script("count_blocked.lua")
async def count_blocked(
    valkey: Valkey, *, cursor: str, now_ms: int | None, **keys: Unpack[GateKeys]
) -> tuple[bytes, int, int]:
    """Count credentials that may make no call at present, and find when the last may again; one page."""
    ...


@lua_script("restore_limits.lua")
async def restore_limits(
    valkey: Valkey,
    *,
    pool: str,
    started: int,
    running: int,
    notes: Sequence[CredentialRecord],
    now_ms: int | None,
    **keys: Unpack[GateKeys],
) -> int:
    """Restore the limits of a pool after a loss of data."""
    ...


@lua_script("report_refusal.lua")
async def report_refusal(
    valkey: Valkey, *, results: Sequence[Settlement], now_ms: int | None, **keys: Unpack[GateKeys]
) -> list[int]:
    """Record at once that the upstream refused a call."""
    ...


@lua_script("confirm_permits.lua")
async def confirm_permits(
    valkey: Valkey, *, asked: Sequence[tuple[str, str, str, int]], now_ms: int | None, **keys: Unpack[GateKeys]
) -> list[list[int]]:
    """Ask whether requests may still be sent."""
    ...


FIRST_CHECK = timedelta(seconds=10)
_MOST_CHECKS = 6
"""The pause doubles each time, so the last check is five minutes after the intent: no commit takes that long."""


@lua_script("record_intent.lua")
async def _record_intent(
    valkey: Valkey, *, intents: Key, wake: Key, intent: str, check_ms: int, now_ms: int | None
) -> int: ...


@lua_script("expired_intents.lua")
async def _expired_intents(
    valkey: Valkey, *, intents: Key, checks: Key, first_ms: int, most: int, now_ms: int | None
) -> list[int]: ...


class EnqueueIntents:
    """The intents of one gate. `record` wakes its timekeeper if the intent expires before all others."""

    def __init__(self, valkey: Valkey, unit: Unit, *, wake: Key, clock: Clock) -> None:
        self._valkey, self._wake, self._clock = valkey, wake, clock
        self._intents, self._checks = intent_keys(unit)

    async def record(self, check_after: timedelta | None = None) -> str:
        """Record that jobs are committed next. Without a confirmation, recovery runs after `check_after`."""
        intent, check_ms = new_id(), milliseconds(FIRST_CHECK if check_after is None else check_after)
        await _record_intent(
            self._valkey,
            intents=self._intents,
            wake=self._wake,
            intent=intent,
            check_ms=check_ms,
            now_ms=self._clock.pinned_ms,
        )
        return intent

    async def confirm(self, intent: str) -> None:
        """Remove an intent: its jobs were enqueued, or never committed."""
        await self._valkey.pipeline([("ZREM", self._intents, intent), ("HDEL", self._checks, intent)])

    async def expired(self) -> tuple[int, int | None]:
        """Return the number of expired intents, and the ms until the next one expires; None if there are no others."""
        due, next_in_ms = await _expired_intents(
            self._valkey,
            intents=self._intents,
            checks=self._checks,
            first_ms=milliseconds(FIRST_CHECK),
            most=_MOST_CHECKS,
            now_ms=self._clock.pinned_ms,
        )
        return due, next_in_ms if next_in_ms >= 0 else None
