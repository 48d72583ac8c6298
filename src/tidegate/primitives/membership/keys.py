"""Keys of the membership of processes and of their leader."""

from tidegate.storage.valkey import Key, Unit


class MembershipKeys:
    """Keys of the registered processes of one unit."""

    def __init__(self, unit: Unit) -> None:
        self.membership: Key = unit.key("membership")
        """zset: owner scored by the ms at which its lease ends."""
        self.leader: Key = unit.key("leader")
        """hash: owner, fence; valid until the lease of that owner ends."""
        self.fence: Key = unit.key("fence")
        """string: the greatest fencing token that was issued in this unit."""
        self.vacancy: Key = unit.key("vacancy")
        """list: at most one token, added by a leader that resigned or by a process that reported its death."""
        self.dead: Key = unit.key("dead")
        """set: owners that were declared dead, until their messages are taken over."""
        self.accepted_writes: Key = unit.key("accepted_writes")
        """hash: since, last: since when the server has accepted writes without a break."""
        self.wake: Key = unit.key("wake")
        """list: the wake-up of the unit's timekeeper, at most one token."""
