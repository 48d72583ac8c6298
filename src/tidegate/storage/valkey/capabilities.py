"""Reads product, version and capabilities of a Valkey or Redis server, and checks that it is supported."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.core.errors import ServerRefused, Unavailable
from tidegate.core.ids import new_id

if TYPE_CHECKING:
    from tidegate.storage.valkey.connection import Valkey

_OLDEST = {"redis": (7, 0), "valkey": (8, 0)}


@dataclass(frozen=True)
class ServerInfo:
    """The other end, as it described itself."""

    product: str
    version: str
    is_cluster: bool
    can_block: bool
    """False where the server forbids blocking reads; readers then pause between empty reads."""
    persists: bool
    """Whether it writes an append-only file: without one, a restart is repaired from SQL, more slowly."""
    evicts: bool
    """Whether it may throw keys away when memory is short; it should not."""


async def examine(valkey: "Valkey") -> ServerInfo:
    """Ask the server about itself; raise `ServerRefused` where it cannot serve us."""
    facts = await _facts(valkey)
    product, version = _product(facts)
    oldest = _OLDEST[product]
    if tuple(int(part) for part in version.split(".")[:2]) < oldest:
        raise ServerRefused(
            valkey.address,
            f"{product} {version} is too old",
            remedy=f"Tidegate needs {product} {'.'.join(map(str, oldest))} or newer",
        )
    if facts.get("role") not in {"master", "primary"}:
        raise ServerRefused(
            valkey.address, "the server is a read-only replica", remedy="Point TIDEGATE_VALKEY_URL at the primary"
        )
    return ServerInfo(
        product=product,
        version=version,
        is_cluster=valkey.is_cluster,
        can_block=await _can_block(valkey),
        persists=bool(facts.get("aof_enabled")),
        evicts=facts.get("maxmemory_policy") not in {None, "noeviction"},
    )


async def _facts(valkey: "Valkey") -> dict[str, Any]:
    reply = await valkey.execute("INFO")
    if valkey.is_cluster and reply and all(isinstance(value, dict) for value in reply.values()):
        return next(iter(reply.values()))
    if str(reply.get("cluster_enabled")) == "1" and not valkey.is_cluster:
        raise ServerRefused(
            valkey.address,
            "the server is a node of a cluster",
            remedy="Use redis+cluster:// (or rediss+cluster://) in TIDEGATE_VALKEY_URL",
        )
    return reply


def _product(facts: dict[str, Any]) -> tuple[str, str]:
    if "valkey_version" in facts:
        return "valkey", str(facts["valkey_version"])
    return "redis", str(facts["redis_version"])


async def _can_block(valkey: "Valkey") -> bool:
    """Whether the server allows blocking reads. The test read finds an entry at once, so it does not block."""
    key = valkey.unit("probe").key(new_id())
    replies = await valkey.pipeline([("RPUSH", key, "1"), ("PEXPIRE", key, 1000), ("BLPOP", key, 1), ("DEL", key)])
    if isinstance(replies[0], ServerRefused):
        return True  # it refuses every write for now, which says nothing about reads that wait
    if isinstance(replies[2], Unavailable) and not isinstance(replies[2], ServerRefused):
        raise replies[2]
    return not isinstance(replies[2], Exception)
