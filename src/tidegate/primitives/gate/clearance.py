"""Checks right before a request is sent whether its permit is still valid.

Between a permit and its request are a stream, a claim in SQL and a connection. Meanwhile the upstream may have refused
another request of the same credential, or this process may have been suspended. So a request needs a *clearance*: a
confirmation by the gate, not older than `FRESH_MS`, that its credential is not blocked and that its permit is not too
old. Refusals that this process receives itself take effect at once.

After a crash: clearances exist in this process only. A refusal is recorded in the gate before its answer is committed;
if the gate was unavailable, the settlement records it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidegate.core.batching import Batcher
from tidegate.core.clock import monotonic_ms
from tidegate.core.errors import ContractBroken, GrantVoid, Unavailable
from tidegate.primitives.gate.gate import Gate, Report
from tidegate.primitives.gate.model import Admitted, Settlement

FRESH_MS = 100.0
"""How long a clearance is valid: long enough to send the requests of one batch, short enough that a process that was
suspended asks again."""
_MOST_ASKED, _UNDER_WAY = 500, 16


class PermitWithdrawn(GrantVoid):
    """The request may not be sent now; its job goes back to the gate."""


@dataclass(eq=False)
class GatePermit:
    """The permit of a job; see `tidegate.engine.upstream.Permit`."""

    admitted: Admitted
    clearances: "Clearances"
    until_ms: float
    """When the clearance ends, on the monotonic clock of this process."""
    _is_used: bool = field(default=False, init=False)

    @property
    def spends(self) -> str:
        """The credential of the request."""
        return self.admitted.credential

    def use(self) -> None:
        """Use the permit. Raises `PermitWithdrawn` if the credential is blocked, `GrantVoid` without a clearance."""
        if self._is_used:
            raise ContractBroken(f"the permit {self.admitted.permit} was used already; each request needs its own")
        # Checked again: another request of this credential may have been refused since the clearance.
        self.clearances.require_no_rest(self.admitted)
        if self.clearances.now_ms() > self.until_ms:
            raise GrantVoid("the clearance of this permit has expired")
        self._is_used = True

    def sent(self) -> None:
        """Called after sending; does nothing, because the gate counts the permit as spent in any case."""

    async def confirm(self) -> None:
        """Get a clearance for the permit. Raises `PermitWithdrawn` if it is no longer valid."""
        self.clearances.require_no_rest(self.admitted)
        if self.clearances.now_ms() > self.until_ms:
            self.until_ms = await self.clearances.ask(self.admitted)


class Clearances:
    """The clearances of the permits that this process has."""

    def __init__(self, gate: Gate, stopwatch: Callable[[], float] = monotonic_ms) -> None:
        self._gate, self.now_ms = gate, stopwatch
        self._rests: dict[str, float] = {}
        """When the block of a credential, or of one of its buckets, ends; on the monotonic clock."""
        self._cleared: dict[str, float] = {}
        """When the clearance of a message ends."""
        self._asked = Batcher(self._ask_together, most=_MOST_ASKED, under_way=_UNDER_WAY)

    async def clear(self, admitted: Sequence[Admitted]) -> None:
        """Get the clearances of a batch with one request to the gate."""
        for one, until_ms in zip(admitted, await self._confirmed(admitted), strict=True):
            if until_ms is not None:
                self._cleared[one.message] = until_ms

    def permit(self, admitted: Admitted) -> GatePermit:
        """The permit of a dispatched job."""
        # Without a clearance the time is 0, and `confirm` asks the gate.
        return GatePermit(admitted, self, self._cleared.pop(admitted.message, 0.0))

    async def report(self, said: Settlement) -> Report | None:
        """Record a block by the upstream: this process sends no request before its end, and the gate is informed.

        Returns the gate's report; None if the gate is unavailable, so that the settlement has to report the block.
        """
        name = f"{said.credential}|{said.said_of}" if said.rests_bucket else said.credential
        # Before the gate is informed: the block takes effect in this process at once.
        self._note_rest(name, said.blocked_ms or 0)
        try:
            reply = await self._gate.report(said)
        except Unavailable:
            return None
        # The gate may know a longer block, or have doubled a guessed one.
        self._note_rest(name, reply.rests_ms)
        return reply

    def require_no_rest(self, admitted: Admitted) -> None:
        """Raise `PermitWithdrawn` if the credential is blocked, as far as this process knows."""
        if not self._rests:
            return
        now_ms = self.now_ms()
        for name in (admitted.credential, f"{admitted.credential}|{admitted.bucket}"):
            rests_ms = self._rests.get(name, 0.0) - now_ms
            if rests_ms > 0:
                raise PermitWithdrawn(f"not sent: the credential is blocked for another {rests_ms:.0f} ms")

    async def ask(self, admitted: Admitted) -> float:
        """When the clearance of this job ends, on the monotonic clock. Concurrent callers share one request."""
        answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._asked.add((admitted, answer))
        return await answer

    async def _ask_together(self, asked: Sequence[tuple[Admitted, asyncio.Future[float]]]) -> None:
        try:
            found = await self._confirmed([admitted for admitted, _ in asked])
        except Exception as error:
            for _, answer in asked:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), until_ms in zip(asked, found, strict=True):
            if answer.done():
                continue
            if until_ms is None:
                answer.set_exception(PermitWithdrawn("not sent: the credential is blocked, or the permit was too old"))
            else:
                answer.set_result(until_ms)

    async def _confirmed(self, admitted: Sequence[Admitted]) -> list[float | None]:
        """When each clearance ends. Counted from before the request, so that a slow answer does not extend it."""
        until_ms = self.now_ms() + FRESH_MS
        found: list[float | None] = []
        for one, rests_ms in zip(admitted, await self._gate.confirm(admitted), strict=True):
            # 0 stands for another reason than a block: the permit was too old.
            if rests_ms:
                self._note_rest(f"{one.credential}|{one.bucket}", rests_ms)
            found.append(until_ms if rests_ms is None else None)
        return found

    def _note_rest(self, name: str, rests_ms: float) -> None:
        now_ms = self.now_ms()
        # Blocks that have ended are removed here; there is no timer for them.
        over = [other for other, until_ms in self._rests.items() if until_ms <= now_ms]
        for other in over:
            del self._rests[other]
        self._rests[name] = max(self._rests.get(name, 0.0), now_ms + rests_ms)
