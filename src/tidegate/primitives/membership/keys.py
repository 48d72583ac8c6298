"""The keys of a community of processes."""

from tidegate.storage.valkey import Key, Unit


class MembershipKeys:
    """Where the processes of one unit are registered, and their leader."""

    def __init__(self, unit: Unit) -> None:
        self.membership: Key = unit.key("membership")
        """zset: owner scored by the ms at which its lease ends."""
        self.leader: Key = unit.key("leader")
        """hash: owner, fence; valid while that owner's lease has not ended."""
        self.fence: Key = unit.key("fence")
        """string: the greatest fence that was given in this unit."""
        self.vacancy: Key = unit.key("vacancy")
        """list: at most one token, put there by a leader that resigned, or by a process that saw it die."""
        self.dead: Key = unit.key("dead")
        """set: owners that were declared dead, until their messages were taken over."""
        self.accepted_writes: Key = unit.key("accepted_writes")
        """hash: since, last: since when the server accepted writes of those who watch the leases, without a break."""
        self.wake: Key = unit.key("wake")
        """list: the wakeup of the unit's timekeeper, at most one token."""
