"""A process of the rush: an instance that takes entries and works on them, until it is killed, or a part of the crowd.

python -m chaos.rush_process instance DATABASE VALKEY FOLDER LEASE PORT
python -m chaos.rush_process crowd PART
"""

import asyncio
import random
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec
import uvloop

from tidegate.app.serving import http_context, serve_apis
from tidegate.connections import open_context
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import configure_logs
from tidegate.http import Binding
from tidegate.http.settings import HttpSettings
from tidegate.primitives.membership import MembershipSettings
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.systems.campaigns.settings import CampaignSettings
from tidegate.systems.campaigns.system import OpenCampaigns, open_campaigns

COUPONS, POINTS = "coupons", "points"
_CALLERS = 48
_AGAIN_S = 0.05
_ANSWER_WITHIN_S = 10.0
_BROKEN = (OSError, EOFError, TimeoutError, ValueError)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of the crowd plays: every so-manieth attempt."""

    number: int
    of: int
    attempts: int
    users: int
    pointed: int
    """How many of the users also enter the campaign that gives points."""
    seed: int
    ports: list[int]
    """Where the instances answer."""
    file: str
    """Where the answers go."""


class Attempt(NamedTuple):
    """One attempt to enter, with its idempotency key."""

    number: int
    campaign: str
    user: str


class Told(msgspec.Struct, frozen=True, array_like=True):
    """The answer to an attempt."""

    attempt: int
    campaign: str
    user: str
    answer: str
    number: int | None


class _Answer(msgspec.Struct, frozen=True):
    answer: str
    number: int | None = None


def attempts_of(part: Part) -> list[Attempt]:
    """Those of one process, in the order in which they are made."""
    everything = [Attempt(n, COUPONS, f"user-{n % part.users}") for n in range(part.attempts)]
    everything += [Attempt(part.attempts + n, POINTS, f"user-{n % part.pointed}") for n in range(2 * part.pointed)]
    random.Random(part.seed).shuffle(everything)
    return everything[part.number :: part.of]


def settings_for(database: str, valkey: str, folder: str, lease_s: float) -> Settings:
    """The settings of every instance: one is missed sooner than after ten seconds, and a quiet campaign ends soon."""
    lease = timedelta(seconds=lease_s)
    return Settings(
        data_dir=Path(folder),
        database_url=database,
        valkey_url=valkey,
        auto_migrate=False,
        membership=MembershipSettings(lease=lease, renew_every=lease / 4),
        campaigns=CampaignSettings(idle_timeout_seconds=lease_s / 2),
    )


async def run_instance(settings: Settings, port: int) -> None:
    """Accept and decide entries, and lead when elected."""
    http = HttpSettings(port=port)
    while True:
        with suppress(Unavailable), Binding(http) as binding:
            async with (
                open_context(settings) as parts,
                open_campaigns(settings, parts.database, parts.valkey) as campaigns,
            ):
                shared, opened = http_context(http, parts.valkey, parts.database), OpenCampaigns(parts, campaigns)
                service = serve_apis([opened.api(shared)], shared, binding)
                process = build_process(parts, [opened], services={"http": service})
                print("there", flush=True)
                await process.run(handle_signals=True)
                return
        await asyncio.sleep(_AGAIN_S)


class Caller:
    """Makes attempts over one connection. An attempt without an answer is repeated at another instance, with the same
    key."""

    def __init__(self, part: Part, draw: random.Random) -> None:
        self._ports, self._draw = part.ports, draw
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def enter(self, attempt: Attempt) -> Told:
        """Ask until there is an answer."""
        body = msgspec.json.encode({"user": attempt.user, "key": f"key-{attempt.number}"})
        request = (
            b"POST /v1/campaigns/%b/entries HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (attempt.campaign.encode(), len(body), body)
        )
        while True:
            try:
                async with asyncio.timeout(_ANSWER_WITHIN_S):
                    status, answer = await self._ask(request)
                if status in (200, 202, 409):
                    found = msgspec.json.decode(answer, type=_Answer)
                    return Told(attempt.number, attempt.campaign, attempt.user, found.answer, found.number)
                if status < 500:
                    raise AssertionError(f"{attempt} was answered {status}: {answer!r}")
            except _BROKEN:
                self.close()
            await asyncio.sleep(_AGAIN_S * (0.5 + self._draw.random()))

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _ask(self, request: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._draw.choice(self._ports))
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        return int(head[9:12]), await reader.readexactly(length)


async def play(part: Part) -> None:
    """Make all attempts, and write the answers to a file."""
    waiting = iter(attempts_of(part))
    told: list[Told] = []

    async def call(draw: random.Random) -> None:
        caller = Caller(part, draw)
        told.extend([await caller.enter(attempt) for attempt in waiting])
        caller.close()

    print("there", flush=True)
    await asyncio.gather(*(call(random.Random(part.seed + n)) for n in range(_CALLERS)))
    Path(part.file).write_bytes(msgspec.msgpack.encode(told))


async def main(role: str, *rest: str) -> None:
    """Play one part."""
    configure_logs("console", "error")
    if role == "instance":
        database, valkey, folder, lease_s, port = rest
        await run_instance(settings_for(database, valkey, folder, float(lease_s)), int(port))
    else:
        await play(msgspec.json.decode(rest[0], type=Part))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
