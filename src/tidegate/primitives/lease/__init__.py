"""The right to do something alone, for a while, with a number that tells older holders from newer ones."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.primitives.lease.keys import LeaseKeys
    from tidegate.primitives.lease.lease import Held, Lease

__all__ = ["Held", "Lease", "LeaseKeys"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.primitives.lease.keys": "LeaseKeys",
        "tidegate.primitives.lease.lease": "Held Lease",
    },
)
