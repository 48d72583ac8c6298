"""Ids that sort by the time they were made."""

import os
import time
import uuid


def new_id() -> str:
    """A UUID of version 7 (RFC 9562): 48 bits of milliseconds, then random."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds << 80) | int.from_bytes(os.urandom(10))
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return str(uuid.UUID(int=value))


def new_owner() -> str:
    """A name for this process among all that ever ran: readable by the operator, never used twice."""
    host = os.uname().nodename.split(".")[0]
    readable = "".join(c for c in host if c.isalnum() or c == "-")[:32]
    return f"{readable}.{os.getpid()}.{os.urandom(4).hex()}"
