"""FIRST_COME: a coupon for each of the first; who is among them is decided before."""

import secrets
from base64 import b32encode
from collections.abc import Sequence

from tidegate.storage.sql import Transaction
from tidegate.systems.campaigns.campaign import FIRST_COME, Campaign, Entry, Outcome, Verdict

_CODE_BYTES = 10
"""80 bits, which nobody guesses, in 16 letters and digits that nobody mistakes for each other."""


class FirstCome:
    """One coupon for each user."""

    kind = FIRST_COME

    def apply(self, tx: Transaction, campaign: Campaign, entries: Sequence[Entry]) -> Sequence[Outcome]:  # noqa: ARG002
        """A new code for each."""
        return [Outcome(verdict=Verdict.ISSUED, code=code) for code in _new_codes(len(entries))]


def _new_codes(count: int) -> list[str]:
    drawn = secrets.token_bytes(count * _CODE_BYTES)
    return [b32encode(drawn[start : start + _CODE_BYTES]).decode() for start in range(0, len(drawn), _CODE_BYTES)]
