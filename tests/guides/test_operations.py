"""The guides for whoever runs it: figures stand in the results, settings exist, and the proxy lets events pass."""

import re
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.docs.pages import ROOT, blocks_of, section_of, table_rows
from tests.http.serving import served
from tests.servers.ports import free_port
from tests.systems.waiting_room.test_page_guide import nginx
from tests.waiting import patience
from tidegate.core.telemetry.catalogue import EVENTS
from tidegate.http.settings import HttpSettings
from tidegate.settings.model import compose
from tidegate.settings.sources import settings_of, variable_of

GUIDES = ROOT / "docs" / "guides"
RESULTS = ROOT / "bench" / "RESULTS.md"
PAGES = ["deploy", "sizing", "backup-and-restore", "upgrade", "tracing"]
NAMES = {".".join(path) for path, _ in settings_of(compose())}
VARIABLES = {variable_of(path) for path, _ in settings_of(compose())}
KEY = "a-key-for-the-tests-0123456789"


def measured() -> dict[str, str]:
    """Every figure of the results: `section: row`, and what was measured; a name that comes twice has both."""
    found: dict[str, str] = {}
    for section in re.findall(r"^## (.+)$", RESULTS.read_text(), re.MULTILINE):
        for what, *told in table_rows(section_of(RESULTS, section)):
            name = f"{section}: {what}"
            found[name] = " ".join([found.get(name, ""), *told])
    return found


def test_every_sizing_figure_is_in_the_results():
    found, figures = measured(), 0
    for heading in ("How much do I need?", "Valkey"):
        for row in table_rows(section_of(GUIDES / "sizing.md", heading)):
            if row[-1]:
                told = re.findall(r"\d[\d,.]*\d", row[1])
                assert any(number in found[row[-1]] for number in told), f"{row[1]} against {found[row[-1]]}"
                figures += 1
    assert figures >= 11


def test_every_sizing_figure_in_the_text_names_a_row():
    text = (GUIDES / "sizing.md").read_text().replace("\n", " ")
    named = re.findall(r"\(((?:Memory|Gate|Sizes|Room watchers): [^)]+)\)", text)

    assert len(named) >= 4
    assert [name for name in map(str.strip, named) if re.sub(r" +", " ", name) not in measured()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_that_a_guide_names_exists(page: str):
    text = (GUIDES / f"{page}.md").read_text()

    assert set(re.findall(r"\bTIDEGATE_[A-Z_]+\b", text)) - {"TIDEGATE_TEST_IMAGE", "TIDEGATE_CONFIG"} <= VARIABLES
    groups = {name.partition(".")[0] for name in NAMES if "." in name}
    told = {name for name in re.findall(r"`([a-z_]+\.[a-z_.]+)`", text) if name.partition(".")[0] in groups}
    assert told - NAMES - set(EVENTS) == set()


async def test_the_proxy_of_the_guide_passes_events_without_buffering(tmp_path: Path):
    [config] = [block.text for block in blocks_of(GUIDES / "deploy.md") if block.language == "nginx"]
    http = HttpSettings(api_key=SecretStr(KEY), proxies=1)
    async with served(tmp_path, http=http, works=False) as site:
        port, behind = free_port(), site.client.url.removeprefix("http://")
        here = re.sub(r"^ *ssl_\w+ .*\n", "", config, flags=re.MULTILINE)
        for told, ours in (("listen 443 ssl", f"listen 127.0.0.1:{port}"), ("127.0.0.1:8321", behind)):
            assert told in here
            here = here.replace(told, ours)
        bearer = {"Authorization": f"Bearer {KEY}"}
        with nginx(here):
            url = f"http://127.0.0.1:{port}"
            body = {"login": site.sim.world.logins()[0]}
            async with site.client.session.post(f"{url}/v1/runs", json=body, headers=bearer) as begun:
                assert begun.status == 201, await begun.text()
                run = await begun.json()
            # Nobody works, so after the first event the stream is silent. Our answers ask nginx not to buffer, too.
            listening = site.client.session.get(f"{url}/v1/runs/{run['id']}/events", headers=bearer)
            async with listening as events, patience():
                came = b""
                while b"event: progress" not in came:
                    came += await events.content.readuntil(b"\n\n")
