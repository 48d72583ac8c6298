"""Simulated visitors that join the line, wait, choose a seat, pay, and leave. They know only the address.

    python -m examples.ticketing.visitors http://127.0.0.1:8420 --people 300

Some are refused by their bank and try another card, some leave without buying; a new visitor replaces each that left.
"""

import argparse
import asyncio
import random
from bisect import bisect
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import accumulate
from typing import Any

import aiohttp
import msgspec
import uvloop
from examples.ticketing.bank import Card

_FAILED = (OSError, aiohttp.ClientError, TimeoutError)
_CARDS = ([Card.GOOD, Card.POOR, Card.MUTE], [88, 10, 2])


class Outside(Exception):
    """Not admitted, or no longer inside."""


class Visitor:
    """One visitor, from joining the line to the ticket."""

    def __init__(self, http: aiohttp.ClientSession, draw: random.Random, *, think_s: float, taste: float) -> None:
        self._http, self._draw, self._think_s, self._taste = http, draw, think_s, taste
        self._pass = ""

    async def visit(self) -> None:
        """Choose an evening, wait for one's turn, and buy some tickets."""
        found = await self._get("/api/schedules")
        on_sale = [each for each in found["schedules"] if each["seats_left"]]
        if not on_sale:
            await asyncio.sleep(1)
            return
        favourite = _favourite(sorted({each["concert"]["id"] for each in on_sale}), self._taste)
        evening = self._draw.choice([each for each in on_sale if each["concert"]["id"] == favourite])
        await self._wait_in_line(evening["waiting_page"].removeprefix("/rooms/"))
        try:
            for _ in range(self._draw.randint(1, 3)):
                if not await self._buy(evening["id"]):
                    break
        finally:
            await self._ask("DELETE", f"/api/schedules/{evening['id']}/session")

    async def _wait_in_line(self, room: str) -> None:
        """Join like the button of the waiting page, and listen like its script, until admitted."""
        async with self._http.post(f"/rooms/{room}", data={"do": "join"}, allow_redirects=False) as joined:
            cookie = joined.cookies.get(f"tidegate_pass_{room}")
        if cookie is None:
            raise Outside(f"{room} takes nobody")
        self._pass = cookie.value
        async with self._events(f"/v1/rooms/{room}/place/events") as places:
            async for place in places:
                self._pass = place.get("pass") or self._pass
                if place["state"] == "inside":
                    return
        raise Outside(f"{room} let us down")

    async def _buy(self, schedule: int) -> bool:
        """Choose a seat, think, and pay; whether it worked out."""
        await self._think()
        seats = (await self._get(f"/api/schedules/{schedule}/seats"))["seats"]
        free = [seat["label"] for seat in seats if seat["availability"] == "free"]
        if not free:
            return False
        wish = {"seat": self._draw.choice(free[:12])}  # front seats are the most wanted
        status, held = await self._ask("POST", f"/api/schedules/{schedule}/reservations", wish)
        await self._think()
        if status != 201 or self._draw.random() < 0.05:  # another visitor was faster, or this one leaves
            return status == 409
        for number in range(3):
            card = self._draw.choices(*_CARDS)[0]
            place, key = f"/api/reservations/{held['id']}/payments", f"{held['id']}-{number}"
            status, _ = await self._ask("POST", place, {"card": card}, {"Idempotency-Key": key})
            if status != 402:
                break
        return status == 201

    async def _get(self, path: str) -> Any:
        status, found = await self._ask("GET", path)
        if status != 200:
            raise Outside(f"{path}: {status}")
        return found

    async def _ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        shown = {**({"Tidegate-Pass": self._pass} if self._pass else {}), **(headers or {})}
        async with self._http.request(method, path, json=body, headers=shown) as answer:
            return answer.status, await answer.json(content_type=None) if answer.status < 500 else None

    @asynccontextmanager
    async def _events(self, path: str) -> AsyncGenerator[AsyncIterator[dict[str, Any]]]:
        headers, for_ever = {"Tidegate-Pass": self._pass}, aiohttp.ClientTimeout(total=None)
        async with self._http.get(path, headers=headers, timeout=for_ever) as stream:
            yield _places(stream.content)

    async def _think(self) -> None:
        await asyncio.sleep(self._think_s * (0.3 + 1.4 * self._draw.random()))


def _favourite(concerts: Sequence[int], taste: float) -> int:
    """Which concert a visitor wants to see: the first ones are the most popular.

    By a taste from 0 to 1 that stays the same, so that each line stays about as long as it is. If everybody chose anew
    each time, in the end all would stand in the longest.
    """
    shares = list(accumulate(1 / (3 + n) for n in range(len(concerts))))
    return concerts[bisect(shares, taste * shares[-1], hi=len(concerts) - 1)]


async def _places(lines: aiohttp.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """The places in a stream of events."""
    event = ""
    async for line in lines:
        name, _, value = line.decode().strip().partition(": ")
        if name == "event":
            event = value
        elif name == "data" and event == "place":
            yield msgspec.json.decode(value)


async def come_and_go(http: aiohttp.ClientSession, draw: random.Random, taste: float, *, think_s: float) -> None:
    """One person after the other, of the same taste."""
    await asyncio.sleep(draw.random() * 3 * think_s)
    while True:
        with suppress(Outside, *_FAILED):
            await Visitor(http, draw, think_s=think_s, taste=taste).visit()
        await asyncio.sleep(think_s * draw.random())


async def main(url: str, people: int, think_s: float, seed: int) -> None:
    """Run this many visitors at a time until cancelled."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as http:
        draws = [random.Random(f"{seed}-{n}") for n in range(people)]
        tastes = [(n + 0.5) / people for n in range(people)]  # evenly: else one line is twice as long by chance
        everybody = [come_and_go(http, *each, think_s=think_s) for each in zip(draws, tastes, strict=True)]
        await asyncio.gather(*everybody)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.ticketing.visitors", description="A simulated crowd.")
    parser.add_argument("url")
    parser.add_argument("--people", type=int, default=300)
    parser.add_argument("--think", type=float, default=1.0, help="how long one thinks before each step, in seconds")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    given = parsed()
    with suppress(KeyboardInterrupt):
        uvloop.run(main(given.url, given.people, given.think, given.seed))
