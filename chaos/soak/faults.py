"""Random faults, one at a time: processes are killed and frozen; servers are lost, refuse, or run out of space."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from chaos.soak.deployment import Deployment, locked

FROZEN_S = 20.0
REFUSED_S = 15.0
"""Longer than the lease of 10 s."""
_CUT_S = 5.0
_BLOCK = 1 << 20

BeforeFlush = Callable[[], Awaitable[None]]


class Faults:
    """Chooses faults by a seeded generator; each ends before the next begins."""

    def __init__(self, deployment: Deployment, seed: int, flush: BeforeFlush) -> None:
        """`flush` loses everything that Valkey holds, after its caller read what a judge needs."""
        self._deployment, self._random, self._flush = deployment, random.Random(seed), flush
        self.injected: Counter[str] = Counter()
        faults: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self.kill),
            (3, self.freeze),
            (2, self.restart_valkey),
            (1, self.flush_valkey),
            (1, self.valkey_read_only),
            (1, self.valkey_out_of_memory),
        ]
        if deployment.proxy is not None:
            faults += [(2, self.cut_database), (1, self.database_read_only)]
        else:
            faults += [(2, self.lock_database)]
        if deployment.has_own_disk:
            faults += [(2, self.fill_disk)]
        self._weights, self._faults = [weight for weight, _ in faults], [fault for _, fault in faults]

    async def inject(self, *, every_s: float) -> None:
        """Inject one fault after the other until cancelled. Every kind comes once before any is drawn at random."""
        for fault in self._random.sample(self._faults, len(self._faults)):
            await self._one(fault, every_s)
        while True:
            (fault,) = self._random.choices(self._faults, self._weights)
            await self._one(fault, every_s)

    async def _one(self, fault: Callable[[], Awaitable[None]], every_s: float) -> None:
        await asyncio.sleep(every_s * (0.5 + self._random.random()))
        self.injected[getattr(fault, "__name__", "fault")] += 1
        await fault()

    async def kill(self) -> None:
        """Kill a process other than the first, whose memory is measured."""
        self._random.choice(self._deployment.members[1:]).send(signal.SIGKILL)

    async def freeze(self) -> None:
        """Freeze any process for longer than its lease."""
        member = self._random.choice(self._deployment.members)
        member.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(FROZEN_S)
        finally:
            member.send(signal.SIGCONT)

    async def restart_valkey(self) -> None:
        """Kill Valkey and start it again with its data."""
        await asyncio.to_thread(self._deployment.valkey.restart)

    async def flush_valkey(self) -> None:
        """Lose everything in Valkey."""
        await self._flush()

    async def valkey_read_only(self) -> None:
        """Every write is refused with READONLY."""
        await self._refusing(("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"))

    async def valkey_out_of_memory(self) -> None:
        """Every write that needs memory is refused with OOM."""
        await self._refusing(("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"))

    async def cut_database(self) -> None:
        """Refuse connections to PostgreSQL, beginning in the middle of a commit."""
        proxy = self._deployment.proxy
        assert proxy is not None
        proxy.cut_after(b"COMMIT;")
        await asyncio.sleep(1)
        await proxy.refuse()
        try:
            await asyncio.sleep(_CUT_S)
        finally:
            await proxy.listen()

    async def database_read_only(self) -> None:
        """PostgreSQL accepts only reading transactions."""
        server = self._deployment.server
        assert server is not None
        await server.admin("ALTER SYSTEM SET default_transaction_read_only = on")
        await server.admin("SELECT pg_reload_conf()")
        try:
            await asyncio.sleep(REFUSED_S)
        finally:
            await server.admin("ALTER SYSTEM RESET default_transaction_read_only")
            await server.admin("SELECT pg_reload_conf()")

    async def lock_database(self) -> None:
        """Hold the write lock of the SQLite file."""
        connection = await asyncio.to_thread(locked, self._deployment.sqlite_file)
        try:
            await asyncio.sleep(_CUT_S)
        finally:
            connection.close()

    async def fill_disk(self) -> None:
        """Fill the disk of the data folder to the last byte."""
        ballast = self._deployment.folder / "data" / "ballast"
        try:
            await asyncio.to_thread(_fill, str(ballast))
            await asyncio.sleep(REFUSED_S)
        finally:
            ballast.unlink(missing_ok=True)

    async def _refusing(self, begin: tuple[str, ...], end: tuple[str, ...]) -> None:
        await asyncio.to_thread(self._command, *begin)
        try:
            await asyncio.sleep(REFUSED_S)
        finally:
            await asyncio.to_thread(self._command, *end)

    def _command(self, *words: str) -> Any:
        client = Redis.from_url(self._deployment.valkey.url, protocol=3, legacy_responses=False)
        with client, suppress(RedisError):
            return client.execute_command(*words)


def _fill(path: str) -> None:
    with open(path, "wb", buffering=0) as ballast:  # noqa: PTH123
        for size in (_BLOCK, 4096, 1):
            with suppress(OSError):
                while True:
                    os.write(ballast.fileno(), b"\0" * size)
