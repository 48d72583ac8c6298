"""Fails runs of pools without a valid credential, because their jobs would wait forever."""

from tidegate.core.telemetry.logs import get_logger
from tidegate.engine import runs
from tidegate.engine.committer import Moved
from tidegate.engine.credentials import how_to_get_one, records
from tidegate.engine.credentials.pools import has_credentials
from tidegate.engine.gate_sync import Recovery
from tidegate.engine.source_addresses import matching_addresses
from tidegate.storage.sql import Transaction
from tidegate.system import Context

log = get_logger(__name__)


class UnservedRuns:
    """Fails the runs of one source in pools without a valid credential, stored or in the memory of a process.

    The runs can be retried after a credential was added. `cell` is the context of the source.
    """

    def __init__(self, cell: Context, source: str, *, on_moved: Moved) -> None:
        self._database, self._source, self._on_moved = cell.database, source, on_moved
        self._recovery = Recovery(cell.database, cell.gate)

    async def check_all(self) -> None:
        """Check all pools of the source: a process may have removed a credential and died before it checked."""
        for pool in await self._database.read(runs.pools_in_use):
            await self.check(pool)

    async def check(self, pool: str) -> None:
        """Fail the runs of a pool if it has no valid credential. Pools of other sources are ignored."""
        if not has_credentials(self._source, pool) or await self._database.read(self._is_served, pool):
            return
        failed = await self._database.transaction(self._fail, pool)
        if failed:
            self._on_moved(failed)
            await self._recovery.forget_failed(failed)
            log.error("credentials.runs_failed", pool=pool, runs=len(failed), jobs=sum(map(len, failed.values())))

    def _is_served(self, tx: Transaction, pool: str) -> bool:
        """Whether a credential is valid for the address of the runs, which may differ from that of this process."""
        return bool(matching_addresses(tx, self._source, records.audiences_of(tx, pool)))

    def _fail(self, tx: Transaction, pool: str) -> dict[int, list[int]]:
        # Checked again in the transaction: a credential may have been added meanwhile.
        if self._is_served(tx, pool):
            return {}
        why = f"no valid credential for pool {pool!r}: {how_to_get_one(self._source)}, and retry the run"
        return runs.fail_pool(tx, pool, why)
