"""A kind of snapshots of one's own: what weather stations measure, kept fresh under the limit of their office.

    python examples/own_kind.py

`WeatherStation` is all that you have to write; docs/guides/snapshots.md explains it. The office stands beside it,
so that the example runs without the internet.
"""

import asyncio
import os
import re
import tempfile
from datetime import timedelta
from pathlib import Path

import msgspec
import uvloop
from aiohttp import web

from tidegate import (
    Answer,
    InvalidArgument,
    Limit,
    LimiterSettings,
    Rate,
    Request,
    Settings,
    Snapshots,
    configure_logs,
    open_context,
)
from tidegate.systems.snapshots import FoundSubject, MissingSubject, UnreadableAnswer, open_snapshots


class Measured(msgspec.Struct):
    """The stored fields; other fields of an answer are left out."""

    celsius: float
    wind: float


class Station(msgspec.Struct):
    """The decoded fields of an answer."""

    number: int
    name: str
    measured: Measured


class WeatherStation:
    """The last measurement of a station. Stations have a number upstream; users know the name, which is the key."""

    name = "weather"

    def __init__(self, url: str, *, api_key: str, ttl: timedelta = timedelta(minutes=5)) -> None:
        self._url, self._headers, self.ttl = url, {"Authorization": f"Bearer {api_key}"}, ttl

    def request(self, key: str, upstream_id: str | None) -> Request:
        if not re.fullmatch(r"[a-z][a-z-]{0,39}", key):
            raise InvalidArgument("key", key[:32], "a station is identified by its name in small letters")
        place = f"/stations/{upstream_id}" if upstream_id else f"/stations?name={key}"
        return Request(url=self._url + place, purpose="weather.station", headers=self._headers)

    def read(self, key: str, answer: Answer) -> FoundSubject | MissingSubject:
        if answer.status == 404:
            return MissingSubject("the office has no such station")
        try:
            station = msgspec.json.decode(answer.body, type=Station)
        except msgspec.DecodeError as error:
            raise UnreadableAnswer(f"station {key}: {error}") from None
        body = msgspec.json.encode(station.measured)
        return FoundSubject(body, identity=station.name, upstream_id=str(station.number))


def from_environment() -> WeatherStation:
    """For the setting `snapshots.kinds`: called without arguments."""
    return WeatherStation(os.environ["WEATHER_URL"], api_key=os.environ["WEATHER_KEY"])


LIMITS = LimiterSettings(
    limits=(Limit(name="second", permits=5, window=timedelta(seconds=1)),),
    rates=(Rate(name="sustained", per_second=4, burst=2),),
)


class Office:
    """A small upstream: stations with numbers, and a count of the calls."""

    KEY = "the office's key"

    def __init__(self, *names: str) -> None:
        self.stations = {name: {"celsius": 11.5, "wind": 6.0} for name in names}
        self.calls: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.KEY}":
            return web.json_response({}, status=401)
        self.calls.append(request.path_qs)
        numbered = dict(enumerate(self.stations, start=101))
        number = request.path.removeprefix("/stations").strip("/")
        name = numbered.get(int(number)) if number else request.query.get("name")
        if name not in self.stations:
            return web.json_response({}, status=404)
        found = next(each for each, known in numbered.items() if known == name)
        measured, desk = self.stations[name], f"desk {len(self.calls)}"
        answered = {"number": found, "name": name, "measured": measured, "served_by": desk}
        return web.json_response(answered)


async def serve(office: Office) -> tuple[web.AppRunner, str]:
    """Open the office; returns what closes it, and its address."""
    application = web.Application()
    application.router.add_get("/{path:.*}", office.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


async def show(snapshots: Snapshots, key: str, *, wait_s: float = 0) -> None:
    """Print the snapshot of a station."""
    answer = await snapshots.reader.wait("weather", key, wait_s)
    print(f"{key}: {answer.freshness}, {'nothing' if answer.body is None else answer.body.decode()}")


async def visit(snapshots: Snapshots, office: Office) -> None:
    """Read, wait for a refresh, read repeatedly, and request a refresh."""
    await show(snapshots, "harbour")
    await show(snapshots, "harbour", wait_s=20)
    for _ in range(1000):
        await snapshots.reader.read("weather", "harbour")
    print(f"after 1,000 more reads the office counts {len(office.calls)} call")
    office.stations["harbour"] = {"celsius": 9.0, "wind": 24.5}
    async with snapshots.feed.watch(["weather/harbour"]) as changes:
        await snapshots.refresh("weather", "harbour")
        await changes.wait(20)
    await show(snapshots, "harbour")
    await show(snapshots, "atlantis", wait_s=20)
    print(f"the office was asked for {', '.join(office.calls)}")


async def main(folder: str) -> None:
    """A process that refreshes and reads."""
    office = Office("harbour", "lighthouse")
    runner, url = await serve(office)
    settings = Settings(data_dir=Path(folder), limiter=LIMITS)
    async with (
        open_context(settings) as parts,
        open_snapshots(parts, [WeatherStation(url, api_key=office.KEY)]) as ours,
    ):
        process = ours.process()
        running = asyncio.create_task(process.run())
        await visit(ours, office)
        process.stop()
        await running
    await runner.cleanup()


if __name__ == "__main__":
    configure_logs(level="warning")
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(main(folder))
