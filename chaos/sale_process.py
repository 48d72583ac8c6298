"""A process of the sale: an instance of the shop, until it is killed, or one that plays a part of the crowd.

python -m chaos.sale_process shop DATABASE VALKEY FOLDER PORT
python -m chaos.sale_process crowd DATABASE VALKEY FOLDER PART
"""

import asyncio
import random
import sys
from base64 import b64encode
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop
from examples.ticketing.bank import Card
from examples.ticketing.reservations import room_of
from examples.ticketing.shop import ShopPlan, open_shop, process_of
from examples.ticketing.web import serve
from pydantic import SecretStr

from tidegate.connections import open_context
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import configure_logs
from tidegate.http import Binding
from tidegate.http.settings import HttpSettings
from tidegate.primitives.membership import MembershipSettings
from tidegate.settings import Settings
from tidegate.systems.waiting_room import Inside, NotPresent, WaitingRoom, WaitingRooms, WaitingRoomSettings
from tidegate.systems.waiting_room.system import open_waiting_rooms

PLAN = ShopPlan(
    hold_for=timedelta(seconds=5),
    charge_within=timedelta(seconds=1),
    settle_after=timedelta(seconds=2),
    bank_takes_s=0.05,
)
_AT_ONCE = 50
_IN_SIGHT = 300
_TRIES = 60
_NOTHING: Any = None


class Part(msgspec.Struct, frozen=True):
    """What one process of the crowd plays."""

    name: str
    people: dict[int, int]
    """How many want to go to each evening."""
    shops: list[str]
    """Where the instances answer."""
    think_s: float


def settings_for(database: str, valkey: str, folder: str) -> Settings:
    """The settings of every process of the campaign: the leader is missed after two seconds, not ten."""
    return Settings(
        data_dir=Path(folder),
        database_url=database,
        valkey_url=valkey,
        auto_migrate=False,
        credentials_key=SecretStr(b64encode(b"a key for all of this campaign..").decode()),
        membership=MembershipSettings(lease=timedelta(seconds=2), renew_every=timedelta(milliseconds=500)),
        waiting_room=WaitingRoomSettings(settle_after=timedelta(seconds=1)),
    )


async def run_shop(settings: Settings, port: int) -> None:
    """Serve, and lead when elected; retries at the start while a server is unavailable."""
    while True:
        with suppress(Unavailable), Binding(HttpSettings(port=port)) as binding:
            async with open_shop(settings, PLAN) as shop:
                process = process_of(shop, {"http": serve(shop, binding)})
                print("there", flush=True)
                await process.run(handle_signals=True)
                return
        await asyncio.sleep(0.2)


class Crowd:
    """All visitors join, wait, and buy when they are admitted. A request without an answer is repeated at another
    shop."""

    def __init__(self, part: Part, rooms: WaitingRooms, session: aiohttp.ClientSession) -> None:
        self._part, self._rooms, self._session = part, rooms, session
        self._draw = random.Random(part.name)
        self._passes: dict[str, str] = {}
        self._sold_out = set[int]()
        self._buying = set[asyncio.Task[None]]()

    async def run(self) -> None:
        """Until everything is sold."""
        await asyncio.gather(*(self._attend(schedule, count) for schedule, count in self._part.people.items()))
        await asyncio.gather(*self._buying)

    async def _attend(self, schedule: int, count: int) -> None:
        room = await self._rooms.room(room_of(schedule))
        waiting = [f"{self._part.name}-{schedule}-{n:05}" for n in range(count)]
        for start in range(0, count, _AT_ONCE):
            await asyncio.gather(*(self._join(room, user) for user in waiting[start : start + _AT_ONCE]))
        while waiting and schedule not in self._sold_out:
            waiting = await self._look(room, schedule, waiting)
            await asyncio.sleep(0.1 + 0.1 * self._draw.random())

    async def _look(self, room: WaitingRoom, schedule: int, waiting: list[str]) -> list[str]:
        """Find the admitted visitors at the front and let them buy; returns those that still wait."""
        seen = waiting[:_IN_SIGHT]
        try:
            standings = (await room.standings(seen)).standings
            inside = {user for user, at in zip(seen, standings, strict=True) if isinstance(at, Inside)}
            # A visitor without a place presents the pass and gets the place back; an admitted one gets a new pass.
            anew = [user for user, at in zip(seen, standings, strict=True) if isinstance(at, NotPresent | Inside)]
            await asyncio.gather(*(self._join(room, user) for user in anew))
        except Unavailable:
            return waiting
        for user in inside:
            task = asyncio.create_task(self._shop(schedule, user))
            self._buying.add(task)
            task.add_done_callback(self._buying.discard)
        return [user for user in waiting if user not in inside]

    async def _join(self, room: WaitingRoom, user: str) -> None:
        while True:
            try:
                answer = await room.join(user, self._passes.get(user))
            except Unavailable:
                await asyncio.sleep(0.2)
                continue
            if answer.token is not None:
                self._passes[user] = answer.token
            return

    async def _shop(self, schedule: int, user: str) -> None:
        """Buy some tickets, or try to; then go."""
        for _ in range(self._draw.randint(1, 3)):
            if not await self._buy_one(schedule, user):
                break
        with suppress(OSError, aiohttp.ClientError, TimeoutError):
            await self._ask(user, "DELETE", f"/api/schedules/{schedule}/session", tries=3)

    async def _buy_one(self, schedule: int, user: str) -> bool:
        status, held = 0, _NOTHING
        for _ in range(10):
            await self._think()
            status, seen = await self._ask(user, "GET", f"/api/schedules/{schedule}/seats")
            free = [seat["label"] for seat in (seen or {}).get("seats", []) if seat["availability"] == "free"]
            if status == 200 and not seen["seats_left"]:
                self._sold_out.add(schedule)
            if status != 200 or not free:
                return False
            wish = {"seat": self._draw.choice(free[:10])}  # all prefer the front rows
            status, held = await self._ask(user, "POST", f"/api/schedules/{schedule}/reservations", wish)
            if status == 201:
                break
        if status != 201 or self._draw.random() < 0.05:
            return False  # some choose a seat, and are never seen again
        await self._think()
        for attempt in range(3):
            card = self._draw.choices([Card.GOOD, Card.POOR, Card.MUTE], [90, 7, 3])[0]
            status, _ = await self._ask(
                user,
                "POST",
                f"/api/reservations/{held['id']}/payments",
                {"card": card},
                headers={"Idempotency-Key": f"{held['id']}-{attempt}"},
            )
            if status != 402:
                break
        return status == 201

    async def _ask(
        self,
        user: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        tries: int = _TRIES,
    ) -> tuple[int, Any]:
        """The answer of whichever instance gives one; 0 where none did."""
        shown = {"Tidegate-Pass": self._passes[user], **(headers or {})}
        for _ in range(tries):
            url = self._draw.choice(self._part.shops) + path
            try:
                async with self._session.request(method, url, json=body, headers=shown) as answer:
                    if answer.status < 500:
                        return answer.status, await answer.json(content_type=None)
            except (OSError, aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(0.1 + 0.2 * self._draw.random())
        return 0, None

    async def _think(self) -> None:
        await asyncio.sleep(self._part.think_s * (0.3 + 1.4 * self._draw.random()))


async def play(settings: Settings, part: Part) -> None:
    """Play a part of the crowd."""
    async with open_context(settings) as parts:
        rooms = open_waiting_rooms(settings, parts.database, parts.valkey)
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
            print("there", flush=True)
            await Crowd(part, rooms, session).run()


async def main(role: str, database: str, valkey: str, folder: str, rest: str) -> None:
    """Play one part."""
    configure_logs("console", "error")
    settings = settings_for(database, valkey, folder)
    if role == "shop":
        await run_shop(settings, int(rest))
    else:
        await play(settings, msgspec.json.decode(rest, type=Part))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
