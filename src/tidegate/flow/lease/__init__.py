"""The right to do something alone, for a while, with a number that tells older holders from newer ones."""

from tidegate.flow.lease.keys import LeaseKeys
from tidegate.flow.lease.lease import Held, Lease

__all__ = ["Held", "Lease", "LeaseKeys"]
