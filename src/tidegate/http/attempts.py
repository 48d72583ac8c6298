"""How often somebody may show a wrong key where people log in: a few times, and then once in a while.

Kept in the memory of the process and not in Valkey, since logging in must work while Valkey is away; with several
processes, whoever guesses has a few attempts more. What is kept is bounded: an address that has its attempts back is
forgotten, and of too many the oldest. Whoever has that many addresses meets the limit over all.

A right key does not give attempts back: else whoever has one key could guess at another without end.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.kernel.arguments import require_positive

_MOST_ADDRESSES = 10_000


@dataclass(frozen=True)
class Allowance:
    """So many attempts at once, and another after so long."""

    burst: int
    another_after_s: float

    def __post_init__(self) -> None:
        require_positive("burst", self.burst)
        require_positive("another_after_s", self.another_after_s)


OF_ONE = Allowance(burst=10, another_after_s=30)
OF_ALL = Allowance(burst=100, another_after_s=1)


class Attempts:
    """Failures, by address and over all."""

    def __init__(
        self,
        of_one: Allowance = OF_ONE,
        of_all: Allowance = OF_ALL,
        *,
        most_addresses: int = _MOST_ADDRESSES,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._of_one, self._of_all, self._most, self._now = of_one, of_all, most_addresses, now
        # When an allowance is whole again says all about it: each failure moves that on by the price of one.
        self._whole_at: dict[str, float] = {}
        self._all_whole_at = 0.0

    def __len__(self) -> int:
        return len(self._whole_at)

    def wait_s(self, address: str) -> int | None:
        """How long this address has to wait before it may try; None where it need not."""
        now = self._now()
        one = _wait(self._of_one, self._whole_at.get(address, 0.0) - now)
        left_s = max(one, _wait(self._of_all, self._all_whole_at - now))
        return math.ceil(left_s) if left_s > 0 else None

    def failed(self, address: str) -> None:
        """A wrong key was shown."""
        now = self._now()
        whole_at = max(now, self._whole_at.pop(address, 0.0)) + self._of_one.another_after_s
        self._whole_at[address] = whole_at  # behind those that failed before
        self._all_whole_at = max(now, self._all_whole_at) + self._of_all.another_after_s
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Those at the front who have everything back, and of too many the one that failed longest ago."""
        while self._whole_at:
            oldest, whole_at = next(iter(self._whole_at.items()))
            if whole_at > now and len(self._whole_at) <= self._most:
                return
            del self._whole_at[oldest]


def _wait(allowance: Allowance, until_whole_s: float) -> float:
    """Until there is one attempt."""
    return until_whole_s - (allowance.burst - 1) * allowance.another_after_s
