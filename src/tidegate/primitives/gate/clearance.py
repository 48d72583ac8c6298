"""Whether a request that has its permit may still leave: asked right before its first byte is written.

Between a permit and its request lie a stream, a claim in SQL and a connection. Meanwhile the upstream may have refused
another request of the same credential, or this process may have been suspended. So a request leaves only with a
*clearance*: the gate's word, not older than `FRESH_MS`, that its credential need not rest, and that
its permit is not too old.
Refusals that this process receives itself count at once.

What a crash leaves behind: a clearance is known to this process only, and dies with it. The refusal is in the gate
before its answer is committed; where the gate could not be reached, the settlement brings it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidegate.core.batching import Batcher
from tidegate.core.clock import monotonic_ms
from tidegate.core.errors import ContractBroken, GrantVoid, Unavailable
from tidegate.primitives.gate.gate import Gate, Report
from tidegate.primitives.gate.jobs import Admitted, Settlement

FRESH_MS = 100.0
"""For how long the gate's word counts. Long enough for the requests of one batch to leave after one question, short
enough that a process which was held up asks again."""
_MOST_ASKED, _UNDER_WAY = 500, 16


class PermitWithdrawn(GrantVoid):
    """The request may not be sent now; its job goes back to the gate."""


@dataclass(eq=False)
class GatePermit:
    """The permit of a job; see `tidegate.engine.upstream.Permit`."""

    admitted: Admitted
    clearances: "Clearances"
    until_ms: float
    """When the gate's word ends, on the monotonic clock of this process."""
    _is_used: bool = field(default=False, init=False)

    @property
    def spends(self) -> str:
        """The credential that the request spends."""
        return self.admitted.credential

    def use(self) -> None:
        """Spend it; raises `PermitWithdrawn` where the credential rests, `GrantVoid` where the gate has to be asked."""
        if self._is_used:
            raise ContractBroken(f"the permit {self.admitted.permit} was used already; each request needs its own")
        self.clearances.require_no_rest(self.admitted)
        if self.clearances.now_ms() > self.until_ms:
            raise GrantVoid("the gate has to be asked again whether this permit holds")
        self._is_used = True

    def sent(self) -> None:
        """Nothing to note: the gate counts the permit as spent, however late its request left."""

    async def confirm(self) -> None:
        """See that it could be used now; raises `PermitWithdrawn` where it may not be used any more."""
        self.clearances.require_no_rest(self.admitted)
        if self.clearances.now_ms() > self.until_ms:
            self.until_ms = await self.clearances.ask(self.admitted)


class Clearances:
    """What this process knows of the permits in its hand."""

    def __init__(self, gate: Gate, stopwatch: Callable[[], float] = monotonic_ms) -> None:
        self._gate, self.now_ms = gate, stopwatch
        self._rests: dict[str, float] = {}
        """Until when a credential, or a bucket of its, rests; on the monotonic clock."""
        self._cleared: dict[str, float] = {}
        """Until when the gate's word counts for a message."""
        self._asked = Batcher(self._ask_together, most=_MOST_ASKED, under_way=_UNDER_WAY)

    async def clear(self, admitted: Sequence[Admitted]) -> None:
        """Ask for all of a batch at once, so that its requests need not ask one by one."""
        for one, until_ms in zip(admitted, await self._confirmed(admitted), strict=True):
            if until_ms is not None:
                self._cleared[one.message] = until_ms

    def permit(self, admitted: Admitted) -> GatePermit:
        """The permit of one of them."""
        return GatePermit(admitted, self, self._cleared.pop(admitted.message, 0.0))

    async def report(self, said: Settlement) -> Report | None:
        """The upstream wants a rest: no request of this process leaves before it is over, and the gate knows of it.

        Returns what the gate made of it; None where it could not be reached: then the settlement has to tell it.
        """
        name = f"{said.credential}|{said.said_of}" if said.rests_bucket else said.credential
        self._note_rest(name, said.blocked_ms or 0)
        try:
            told = await self._gate.report(said)
        except Unavailable:
            return None
        self._note_rest(name, told.rests_ms)
        return told

    def require_no_rest(self, admitted: Admitted) -> None:
        """Raise `PermitWithdrawn` where the credential rests, as far as this process knows."""
        if not self._rests:
            return
        now_ms = self.now_ms()
        for name in (admitted.credential, f"{admitted.credential}|{admitted.bucket}"):
            rests_ms = self._rests.get(name, 0.0) - now_ms
            if rests_ms > 0:
                raise PermitWithdrawn(f"not sent: the credential rests for {rests_ms:.0f} ms more")

    async def ask(self, admitted: Admitted) -> float:
        """Until when this one may be used, on the monotonic clock. Concurrent callers share one request."""
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
                answer.set_exception(PermitWithdrawn("not sent: the credential rests, or its permit was too old"))
            else:
                answer.set_result(until_ms)

    async def _confirmed(self, admitted: Sequence[Admitted]) -> list[float | None]:
        """Until when each may be used. From before the question: however long the answer takes, it ends in time."""
        until_ms = self.now_ms() + FRESH_MS
        found: list[float | None] = []
        for one, rests_ms in zip(admitted, await self._gate.confirm(admitted), strict=True):
            if rests_ms:
                self._note_rest(f"{one.credential}|{one.bucket}", rests_ms)
            found.append(until_ms if rests_ms is None else None)
        return found

    def _note_rest(self, name: str, rests_ms: float) -> None:
        now_ms = self.now_ms()
        over = [other for other, until_ms in self._rests.items() if until_ms <= now_ms]
        for other in over:
            del self._rests[other]
        self._rests[name] = max(self._rests.get(name, 0.0), now_ms + rests_ms)
