"""The configuration of nginx in the guide, in a real nginx: before a shop that knows nothing of waiting rooms."""

import re
import shutil
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
from aiohttp import web
from pydantic import SecretStr

from tests.docs.pages import ROOT, blocks_of
from tests.http.serving import Client, read_events
from tests.servers.guarded import GuardedServer, new_folder
from tests.servers.ports import free_port
from tests.servers.registry import record_used, skip_or_fail
from tests.systems.waiting_room.harness import ROOM
from tests.systems.waiting_room.room_site import room_site_at
from tidegate.http.settings import HttpSettings
from tidegate.storage.valkey import Valkey

GUIDE = ROOT / "docs" / "guides" / "waiting-page.md"
HOST = "tickets.example.com"
FROM_ELSEWHERE = {"host": HOST, "sec-fetch-site": "cross-site"}
FROM_THE_PAGE = {"host": HOST, "origin": f"https://{HOST}", "sec-fetch-site": "same-origin"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
_AROUND = """
daemon off; master_process off; pid {folder}/pid; error_log stderr notice;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
{server}
}}
"""


@contextmanager
def nginx(config: str) -> Generator[None]:
    """An nginx with this server in it."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/bin:/usr/bin:/opt/homebrew/bin")
    if program is None:
        skip_or_fail("nginx", "it is not installed; `make services` does that")
    folder = new_folder(None)
    file = folder / "nginx.conf"
    file.write_text(_AROUND.format(folder=folder, server=config))
    command = [program, "-p", str(folder), "-c", str(file), "-e", "stderr"]
    server = GuardedServer(folder, command, ready="using the", signal="TERM", user=None)
    told = subprocess.run([program, "-v"], capture_output=True, text=True, check=True)
    record_used("nginx", told.stderr.rpartition("/")[2].strip())
    try:
        yield
    finally:
        server.stop()


@asynccontextmanager
async def shop() -> AsyncGenerator[int]:
    """Sells seats to whoever asks; its port."""

    async def seats(_: web.Request) -> web.Response:
        return web.Response(text="the seats")

    application = web.Application()
    application.router.add_route("*", "/seats", seats)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield port
    finally:
        await runner.cleanup()


def shown_config(*, listen: int, tidegate: int, shop: int) -> str:
    """That of the guide, on ports of this machine and without certificates."""
    [block] = [block for block in blocks_of(GUIDE) if block.language == "nginx"]
    config = re.sub(r"^ *ssl_\w+ .*\n", "", block.text, flags=re.MULTILINE)
    ports = {"listen 443 ssl": f"listen 127.0.0.1:{listen}", "127.0.0.1:8321": f"127.0.0.1:{tidegate}"}
    for told, ours in {**ports, "127.0.0.1:9000": f"127.0.0.1:{shop}"}.items():
        assert told in config
        config = config.replace(told, ours)
    return config


def key_of(config: str) -> SecretStr:
    found = re.search(r'"Bearer (\w+)"', config)
    assert found
    return SecretStr(found[1])


async def test_nginx_redirects_visitors_without_a_session_to_the_page(tmp_path: Path, embedded: Valkey):
    listen = free_port()
    http = HttpSettings(api_key=key_of(GUIDE.read_text()))
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        room_site_at(tmp_path, embedded, http) as site,
        shop() as shop_port,
        aiohttp.ClientSession(cookie_jar=jar) as session,
    ):
        await site.open(entrance="/seats")
        config = shown_config(listen=listen, tidegate=int(site.url.rpartition(":")[2]), shop=shop_port)
        visitor = Client(session, f"http://127.0.0.1:{listen}")
        with nginx(config):
            turned_away = await visitor.get("/seats", headers=FROM_ELSEWHERE)
            assert (turned_away.status, turned_away.headers["location"]) == (
                303,
                f"http://{HOST}:{listen}/rooms/{ROOM}",
            )
            assert (await visitor.get("/v1/rooms", headers={"host": HOST})).status == 404
            joined = await visitor.ask("POST", site.path, data="do=join", headers=FROM_THE_PAGE | FORM)
            assert joined.status == 303, joined

            async with session.get(f"{visitor.url}/v1/rooms/{ROOM}/place/events", headers={"host": HOST}) as events:
                states = list[str]()
                async for event in read_events(events):
                    if event.kind == "place":
                        states.append(event.data["state"])
                    if states == ["waiting"]:
                        await site.amend(capacity=1)
                assert (states[0], states[-1]) == ("waiting", "inside")

            entering = await visitor.get(site.path, headers=FROM_THE_PAGE)
            assert (entering.status, entering.headers["location"]) == (303, "/seats")
            for method in ("GET", "POST"):
                let_in = await visitor.ask(method, "/seats", headers=FROM_ELSEWHERE | FORM, data="seat=1")
                assert (let_in.status, let_in.body) == (200, b"the seats")
