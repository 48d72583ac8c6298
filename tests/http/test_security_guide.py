"""What the guide about security shows is what the server does; its proxy is a real nginx."""

import re
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from pydantic import SecretStr

from tests.docs.pages import ROOT, blocks_of
from tests.http.serving import Served, served
from tests.http.test_guide import assert_fits, request_of, shown_in
from tests.servers.ports import free_port
from tests.systems.waiting_room.test_page_guide import nginx
from tidegate.core.telemetry.catalogue import EVENTS
from tidegate.http.settings import HttpSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

GUIDE = ROOT / "docs" / "guides" / "security.md"
KEY, READ = "operate-0123456789abcdef", "read-0123456789abcdef"
EXACT = ("type", "title", "status", "role", "needs_key", "logged_out")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    http = HttpSettings(api_key=SecretStr(KEY), read_keys=(SecretStr(READ),), proxies=1)
    async with served(tmp_path_factory.mktemp("guarded"), http=http, works=False, has_token=False) as started:
        yield started


async def test_the_requests_of_the_guide_have_its_responses(guarded: Served):
    requests, csrf = shown_in(GUIDE, "curl"), ""
    assert len(requests) >= 8, "the search finds too little"
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        for each in requests:
            is_browser = "jar" in each.words
            words = [word for word in each.words if word not in ("-b", "-c", "jar")]
            for name, value in (("$KEY", KEY), ("$READ_KEY", READ), ("$CSRF", csrf)):
                words = [word.replace(name, value) for word in words]
            method, path, body, headers = request_of(words)
            session = browser if is_browser else guarded.client.session
            async with session.request(method, guarded.client.url + path, data=body, headers=headers) as answer:
                told, real = msgspec.json.decode(each.output[0]), msgspec.json.decode(await answer.read())
            assert_fits(told, real)
            assert {name: real.get(name) for name in EXACT} == {name: told.get(name) for name in EXACT}
            csrf = real.get("csrf") or csrf
        assert not list(browser.cookie_jar), "whoever has logged out keeps nothing"


async def test_the_guide_names_every_public_route_and_every_limit():
    text, settings = GUIDE.read_text(), HttpSettings()

    for name in re.findall(r"`http\.(\w+)`", text):
        assert name in HttpSettings.model_fields or f"http.{name}" in EVENTS, name
    assert settings.largest_body == 1024 * 1024
    assert settings.session_lasts.total_seconds() == 12 * 3600
    assert (settings.answer_within.total_seconds(), settings.most_listeners, settings.most_watchers) == (
        30,
        500,
        10_000,
    )


async def test_behind_the_proxy_of_the_guide_a_browser_logs_in_and_acts(guarded: Served):
    [location] = [block.text for block in blocks_of(GUIDE) if block.language == "nginx"]
    port = free_port()
    inside = location.replace("127.0.0.1:8321", str(urlsplit(guarded.client.url).netloc)).replace("$scheme", "https")
    url = f"http://127.0.0.1:{port}"
    with nginx(f"server {{ listen 127.0.0.1:{port};\n{inside}\n}}"):
        async with aiohttp.ClientSession(url) as session:
            page = {"origin": f"https://127.0.0.1:{port}", "sec-fetch-site": "same-origin"}
            async with session.post("/v1/session", json={"key": KEY}, headers=page) as opened:
                assert opened.status == 200, await opened.text()
                cookie, told = opened.headers["set-cookie"], await opened.json()
            assert cookie.startswith("__Host-tidegate_session=")
            assert cookie.endswith("; Secure")
            ours = page | {"cookie": cookie.partition(";")[0], "x-tidegate-csrf": told["csrf"]}
            async with session.post("/v1/runs/4711/cancel", headers=ours) as acted:
                assert (acted.status, acted.headers["strict-transport-security"]) == (404, "max-age=31536000")
            async with session.post("/v1/runs/4711/cancel", headers=ours | {"origin": "https://evil.example"}) as acted:
                assert acted.status == 403
