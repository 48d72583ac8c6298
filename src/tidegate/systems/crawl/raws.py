"""Reads and encodes stored answers, replays dead letters, and deletes old answers and the health of identities.

A body is compressed if that pays, and identified by a hash of its content.
"""

import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
import xxhash
import zstandard
from multidict import CIMultiDict, CIMultiDictProxy
from sqlalchemy import ColumnElement, Row, func, select, update

from tidegate.core.arguments import require_whole
from tidegate.core.errors import InvalidArgument, NotFound, Unavailable
from tidegate.engine.parked_answer_store import ParkedAnswer
from tidegate.engine.upstream import Answer
from tidegate.runtime.retention import RetentionRule, TableRule
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.crawl.hosts import crawl_identity_health
from tidegate.systems.crawl.stages import SEARCH, PageKind, RawState, Stage
from tidegate.systems.crawl.tables import crawl_raws
from tidegate.systems.crawl.writing import RAWS_STORED

LARGEST_BODY = 64 * 1024 * 1024
_PAYS_FROM = 1024
"""Minimum size in bytes; compressing smaller bodies takes more time than it saves space."""
_MAGIC = b"\x28\xb5\x2f\xfd"
_per_thread = threading.local()
_encoder = msgspec.json.Encoder(order="deterministic")


def digest(body: bytes) -> str:
    """A fast hash that identifies bytes; not cryptographic, since a forged one has no use."""
    return xxhash.xxh3_64_hexdigest(body)


def as_text(content: Any) -> str:
    """Extracted content as canonical JSON: equal content gives equal text."""
    return _encoder.encode(content).decode()


def pack(body: bytes) -> bytes:
    """Compress a body for storage."""
    if len(body) > LARGEST_BODY:
        raise InvalidArgument("body", f"{len(body)} bytes", f"must have at most {LARGEST_BODY}")
    # A plain body that begins like a compressed one must be compressed, since `unpack` tells them
    # apart by the first bytes.
    if len(body) < _PAYS_FROM and not body.startswith(_MAGIC):
        return body
    if not hasattr(_per_thread, "compressor"):
        _per_thread.compressor = zstandard.ZstdCompressor(level=1)
    return _per_thread.compressor.compress(body)


def unpack(packed: bytes) -> bytes:
    """Restore a stored body."""
    if not packed.startswith(_MAGIC):
        return packed
    if not hasattr(_per_thread, "decompressor"):
        _per_thread.decompressor = zstandard.ZstdDecompressor()
    return _per_thread.decompressor.decompress(packed, max_output_size=LARGEST_BODY)


MOST_AT_ONCE = 1_000
_MOST_PRUNED = 1_000
_c = crawl_raws.c


class Raw(msgspec.Struct, frozen=True, kw_only=True):
    """A stored answer without its body."""

    id: int
    run_id: int
    job_id: int
    site: str
    host: str
    product_id: str
    """The id of the product; for a search page, its keyword and page."""
    shop_id: str
    stage: PageKind
    state: RawState
    attempts: int
    """Number of failed attempts to apply it."""
    waits_for: Stage | None
    """The stage that must be applied first."""
    reason: str | None
    """Why it failed, or why it changed nothing: superseded by a newer one, or unchanged."""
    hash: str
    received_at: datetime
    not_before: datetime
    """Time of the next attempt."""
    processed_at: datetime | None
    applied_as: int | None
    """Sequence number of the change that it made to its product."""


class RawPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of stored answers, oldest first."""

    raws: list[Raw]
    next_after: int | None
    """Pass this as `after` for the next page; None on the last one."""


class Raws:
    """Stored answers. `ring` wakes the leader in any process when there is something to apply."""

    def __init__(self, database: Database, ring: Callable[[], Awaitable[object]] | None = None) -> None:
        self._database, self._ring = database, ring

    async def get(self, raw_id: int) -> Raw:
        """Return one answer; raises `NotFound`."""
        found = await self._database.read(_page, [_c.id == raw_id], 1)
        if not found:
            raise NotFound("raw", raw_id)
        return found[0]

    async def body(self, raw_id: int) -> bytes:
        """The body of an answer; raises `NotFound`."""
        packed = await self._database.read(_body, raw_id)
        if packed is None:
            raise NotFound("raw", raw_id)
        return unpack(packed)

    async def page(
        self,
        *,
        state: RawState | None = None,
        run_id: int | None = None,
        host: str | None = None,
        product_id: str | None = None,
        stages: Collection[str] = PageKind,
        after: int | None = None,
        limit: int = 100,
    ) -> RawPage:
        """One page of stored answers without bodies, ordered by id, with ids greater than `after`.

        They are filtered by state, run, host, product and kinds of pages (`stages`); None: no filter.
        """
        require_whole("limit", limit, least=1, most=MOST_AT_ONCE)
        wanted = {"state": state, "run_id": run_id, "host": host, "product_id": product_id}
        those = [_c[name] == value for name, value in wanted.items() if value is not None]
        if len(stages) < len(PageKind):
            those.append(_c.stage.in_(sorted(stages)))
        if after is not None:
            those.append(_c.id > after)
        raws = await self._database.read(_page, those, limit)
        return RawPage(raws=raws, next_after=raws[-1].id if len(raws) == limit else None)

    async def dead(self, *, after: int | None = None, limit: int = 100) -> RawPage:
        """One page of dead letters."""
        return await self.page(state=RawState.FAILED, after=after, limit=limit)

    async def counts(
        self, states: Iterable[RawState] = RawState, *, run_id: int | None = None, stages: Collection[str] = PageKind
    ) -> dict[RawState, int]:
        """Count answers by state, of all runs or of one, limited to some `stages`."""
        return await self._database.read(_counts, list(states), run_id, stages)

    async def dead_searches(self, raw_ids: Sequence[int] | None = None) -> dict[int, int]:
        """Dead letters that are search pages, of these or of all: answer ids with their job ids."""
        _require_numbers(raw_ids)
        return await self._database.read(_dead_searches, raw_ids)

    async def answer(self, raw_id: int) -> ParkedAnswer:
        """An answer in the form in which its job reads it again; raises `NotFound`."""
        raw, body = await self.get(raw_id), await self.body(raw_id)
        answer = Answer(
            status=200,
            headers=CIMultiDictProxy(CIMultiDict()),
            url=f"http://{raw.host}/",
            received_at=raw.received_at,
            body=body,
            elapsed_ms=0.0,
        )
        return ParkedAnswer("crawl:replay", answer.pack(), self._database.clock.now())

    async def replay(self, raw_ids: Sequence[int] | None = None) -> int:
        """Queue dead letters again, so that their stored answers are applied to products. Returns their number.

        `raw_ids` selects dead letters; the default is all. Those of search pages are not included, because their jobs
        read them: `Crawls.replay` handles both.
        """
        _require_numbers(raw_ids)
        replayed = await self._database.transaction(_replay, None if raw_ids is None else sorted(set(raw_ids)))
        if replayed and self._ring is not None:
            with suppress(Unavailable):  # the next leader finds them without a wake-up
                await self._ring()
        return replayed


def _page(tx: Transaction, those: Sequence[ColumnElement[bool]], limit: int) -> list[Raw]:
    columns = [_c[name] for name in Raw.__struct_fields__]
    return [_raw(row) for row in tx.execute(select(*columns).where(*those).order_by(_c.id).limit(limit))]


def _body(tx: Transaction, raw_id: int) -> bytes | None:
    return tx.execute(select(_c.body).where(_c.id == raw_id)).scalar_one_or_none()


def _counts(
    tx: Transaction, states: Sequence[RawState], run_id: int | None, stages: Collection[str]
) -> dict[RawState, int]:
    those = [_c.state.in_(states)] if run_id is None else [_c.state.in_(states), _c.run_id == run_id]
    if len(stages) < len(PageKind):
        those.append(_c.stage.in_(sorted(stages)))
    rows = tx.execute(select(_c.state, func.count()).where(*those).group_by(_c.state))
    return dict.fromkeys(states, 0) | {RawState(state): count for state, count in rows}


def _require_numbers(raw_ids: Sequence[int] | None) -> None:
    for raw_id in raw_ids or ():
        require_whole("raw", raw_id, least=1, most=(1 << 63) - 1)


def _dead_searches(tx: Transaction, raw_ids: Sequence[int] | None) -> dict[int, int]:
    those = [_c.state == RawState.FAILED, _c.stage == SEARCH]
    if raw_ids is not None:
        those.append(_c.id.in_(sorted(set(raw_ids))))
    return {row.id: row.job_id for row in tx.execute(select(_c.id, _c.job_id).where(*those).order_by(_c.id))}


def _replay(tx: Transaction, raw_ids: Sequence[int] | None) -> int:
    those = [_c.state == RawState.FAILED, _c.stage != SEARCH]
    if raw_ids is not None:
        those.append(_c.id.in_(raw_ids))
    # Attempts begin again: an operator replays after the cause was repaired.
    again = {"state": RawState.PENDING, "attempts": 0, "not_before": tx.now, "waits_for": None, "processed_at": None}
    replayed = tx.execute(update(crawl_raws).where(*those).values(again)).rowcount
    if replayed:
        tx.announce(RAWS_STORED)
    return replayed


def _raw(row: Row[*tuple[Any, ...]]) -> Raw:
    return msgspec.convert(row, Raw, from_attributes=True)


def rules(
    database: Database, *, raws: timedelta, dead_letters: timedelta, identity_health: timedelta
) -> list[RetentionRule]:
    """The rules for processed answers, dead letters and health rows."""
    raw, health = crawl_raws.c, crawl_identity_health.c
    return [
        TableRule(
            database,
            crawl_raws,
            raws,
            lambda before: [raw.state == RawState.PROCESSED, raw.not_before < before, raw.processed_at < before],
        ),
        TableRule(
            database,
            crawl_raws,
            dead_letters,
            lambda before: [raw.state == RawState.FAILED, raw.received_at < before],
            name="crawl_dead_letters",
        ),
        TableRule(
            database,
            crawl_identity_health,
            identity_health,
            lambda before: [
                health.updated_at < before,
                health.resting_until.is_(None) | (health.resting_until < before),
            ],
        ),
    ]
