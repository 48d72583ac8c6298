"""`/healthz`, `/readyz` and `/metrics`: endpoints for orchestrators and Prometheus."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from sqlalchemy import select

from tidegate import __version__
from tidegate.core.clock import monotonic_ms
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import TIDEGATE_BUILD, exposition
from tidegate.http.asgi import HttpResponse
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.routes import route
from tidegate.runtime.outage import Outage
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey

log = get_logger(__name__)
_outage = Outage("http.ready")

TAG = "operations"
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
_WITHIN_S = 1.0
_FRESH_MS = 500.0


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/healthz`: the process is alive."""

    status: str
    version: str


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/readyz`: whether the servers that this process needs are available."""

    ready: bool
    checks: dict[str, bool]
    """For each server, whether it answered in time."""


class Refreshable(Protocol):
    """Gauges that are computed at scrape time."""

    async def refresh(self) -> None:
        """Compute the current values."""
        ...


class Operations:
    """Handlers of `/healthz`, `/readyz` and `/metrics`."""

    def __init__(
        self, database: Database, valkey: Valkey, *, open_metrics: bool, gauges: Sequence[Refreshable] = ()
    ) -> None:
        """`gauges` are refreshed at each scrape."""
        self._database, self._valkey, self._open_metrics = database, valkey, open_metrics
        TIDEGATE_BUILD.info({"version": __version__})
        self._gauges = gauges
        self._found: tuple[float, dict[str, bool]] = (float("-inf"), {})
        self._looking = asyncio.Lock()

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of these endpoints."""
        return [
            route("GET", "/healthz", self.health, TAG, is_open=True, is_high_volume=True),
            route("GET", "/readyz", self.readiness, TAG, is_open=True, is_high_volume=True),
            route(
                "GET",
                "/metrics",
                self.metrics,
                TAG,
                media_types=(EXPOSITION,),
                is_open=self._open_metrics,
                is_high_volume=True,
            ),
        ]

    async def health(self) -> Health:
        """Report that the process is alive. No server is asked."""
        return Health(status="ok", version=__version__)

    async def readiness(self) -> Readiness:
        """Report whether the database and the Valkey server answer. 503 while one of them does not."""
        async with self._looking:  # concurrent requests share one check
            found_ms, checks = self._found
            if monotonic_ms() - found_ms > _FRESH_MS:
                checks = await self._look()
                self._found = monotonic_ms(), checks
        away = sorted(name for name, is_there in checks.items() if not is_there)
        if away:
            raise RequestFailed(
                ProblemType.UNAVAILABLE, f"unavailable: {', '.join(away)}", headers={"Retry-After": "1"}
            )
        return Readiness(ready=True, checks=checks)

    async def metrics(self) -> HttpResponse:
        """Return all metrics in the text format of Prometheus.

        Gauges about the whole deployment are computed now; a gauge that cannot be computed is NaN. Counters and
        histograms are those of this process: scrape every process, and sum.
        """
        await asyncio.gather(*(gauges.refresh() for gauges in self._gauges))
        return Response(exposition(), headers={"content-type": EXPOSITION})

    async def _look(self) -> dict[str, bool]:
        checks: Mapping[str, Callable[[], Awaitable[object]]] = {
            "database": lambda: self._database.read(_ask),
            "valkey": lambda: self._valkey.execute("PING"),
        }
        answers = await asyncio.gather(*(_answers(name, ask) for name, ask in checks.items()))
        return dict(zip(checks, answers, strict=True))


async def _answers(name: str, ask: Callable[[], Awaitable[object]]) -> bool:
    try:
        async with asyncio.timeout(_WITHIN_S):
            await ask()
    except Unavailable as error:
        _outage.note(error)
        return False
    except Exception as error:  # any error means that the server is not ready
        log.warning("http.not_ready", server=name, error=str(error) or "no answer in time")
        return False
    return True


def _ask(tx: Transaction) -> int:
    return tx.execute(select(1)).scalar_one()
