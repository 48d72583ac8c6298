"""`/healthz`, `/readyz` and `/metrics`: for the machines that look after this process."""

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
    """The process is alive."""

    status: str
    version: str


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether what this process stands on is there."""

    ready: bool
    checks: dict[str, bool]
    """Each server, and whether it answered in time."""


class Refreshable(Protocol):
    """Figures that are found out when somebody asks."""

    async def refresh(self) -> None:
        """Find out now."""
        ...


class Operations:
    """The handlers."""

    def __init__(
        self, database: Database, valkey: Valkey, *, open_metrics: bool, gauges: Sequence[Refreshable] = ()
    ) -> None:
        """`gauges` are metrics that are computed when they are scraped."""
        self._database, self._valkey, self._open_metrics = database, valkey, open_metrics
        TIDEGATE_BUILD.info({"version": __version__})
        self._gauges = gauges
        self._found: tuple[float, dict[str, bool]] = (float("-inf"), {})
        self._looking = asyncio.Lock()

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """What is told."""
        return [
            route("GET", "/healthz", self.health, TAG, is_open=True, is_chatter=True),
            route("GET", "/readyz", self.readiness, TAG, is_open=True, is_chatter=True),
            route(
                "GET",
                "/metrics",
                self.metrics,
                TAG,
                media_types=(EXPOSITION,),
                is_open=self._open_metrics,
                is_chatter=True,
            ),
        ]

    async def health(self) -> Health:
        """Tell that the process is alive. Nothing else is looked at."""
        return Health(status="ok", version=__version__)

    async def readiness(self) -> Readiness:
        """Tell whether the database and the Valkey server answer. 503 while one of them does not."""
        async with self._looking:  # those who come at once wait for one look
            found_ms, checks = self._found
            if monotonic_ms() - found_ms > _FRESH_MS:
                checks = await self._look()
                self._found = monotonic_ms(), checks
        away = sorted(name for name, is_there in checks.items() if not is_there)
        if away:
            raise RequestFailed(ProblemType.UNAVAILABLE, f"away: {', '.join(away)}", headers={"Retry-After": "1"})
        return Readiness(ready=True, checks=checks)

    async def metrics(self) -> HttpResponse:
        """Tell every metric, in the format that Prometheus reads.

        States of the whole deployment are found out now; what cannot be found out is NaN. Counters and histograms are
        those of this process: ask every process, and add.
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
    except Exception as error:  # whatever it is, it did not answer
        log.warning("http.not_ready", server=name, error=str(error) or "no answer in time")
        return False
    return True


def _ask(tx: Transaction) -> int:
    return tx.execute(select(1)).scalar_one()
