"""The page and its files: who may have them, under which addresses, and with which headers."""

from pathlib import Path

import pytest
from pydantic import SecretStr
from yarl import URL

from tests.http.serving import Client, Served, served
from tidegate.dashboard.files import Files
from tidegate.http.settings import HttpSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "0123456789abcdef"


async def digest_in(client: Client) -> str:
    page = (await client.get("/")).body.decode()
    return page.partition("/assets/")[2].partition("/")[0]


async def test_the_content_security_policy_allows_only_what_the_page_needs(deployment: Served):
    answer = await deployment.client.get("/")

    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = set(answer.headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    }
    assert answer.headers["cache-control"] == "no-cache", "a new version is seen at once"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert b"{digest}" not in answer.body
    assert b"<script>" not in answer.body
    assert b"style=" not in answer.body


async def test_files_are_cached_forever_under_their_common_digest(deployment: Served):
    client = deployment.client
    digest = await digest_in(client)

    script = await client.get(f"/assets/{digest}/js/main.js")
    style = await client.get(f"/assets/{digest}/app.css")

    assert (script.status, script.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert (style.status, style.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert (await client.get(f"/assets/{'0' * 16}/js/main.js")).problem == "not-found"


async def test_every_file_that_the_page_references_exists(deployment: Served):
    page = (await deployment.client.get("/")).body.decode()

    named = [part.partition('"')[0] for part in page.split('"/assets/')[1:]]

    assert len(named) >= 3
    for name in named:
        assert (await deployment.client.get(f"/assets/{name}")).status == 200, name


@pytest.mark.parametrize(
    "path",
    [
        "../opening.py",
        "js/../../opening.py",
        "%2e%2e/opening.py",
        "..%2fopening.py",
        "js%2f..%2f..%2fopening.py",
        "//etc/passwd",
        "%2Fetc%2Fpasswd",
        "index.html",
        "js",
        "js/",
        "",
        "%00",
        "js/main.js%00.css",
    ],
)
async def test_only_files_of_the_dashboard_are_served(path: str, deployment: Served):
    client, digest = deployment.client, await digest_in(deployment.client)

    # Sent unchanged: an attacker does not normalize addresses.
    address = URL(f"{client.url}/assets/{digest}/{path}", encoded=True)
    async with client.session.get(address) as answer:
        assert (answer.status, answer.content_type) == (404, "application/problem+json")


async def test_the_digest_depends_on_names_and_contents_and_ignores_foreign_files(
    tmp_path: Path,
):
    (tmp_path / "js").mkdir()
    (tmp_path / "index.html").write_text("<p>{digest}</p>")
    (tmp_path / "js" / "a.js").write_text("1")
    (tmp_path / "js" / ".a.js").write_text("hidden")
    (tmp_path / "js" / "a.js~").write_text("left behind")
    first = Files(tmp_path)
    (tmp_path / "js" / "a.js").write_text("2")
    second = Files(tmp_path)
    (tmp_path / "js" / "a.js").rename(tmp_path / "js" / "b.js")
    third = Files(tmp_path)

    assert len({first.digest, second.digest, third.digest}) == 3
    assert (await first.show_page()).content == f"<p>{first.digest}</p>".encode()
    assert (await third.show_file(third.digest, "js/b.js")).content == b"2"
    for name in ("js/.a.js", "js/a.js~", "js/a.js"):
        with pytest.raises(Exception, match="no such file"):
            await third.show_file(third.digest, name)


async def test_with_keys_configured_the_page_is_public_and_its_data_is_not(tmp_path: Path):
    async with served(
        tmp_path, http=HttpSettings(api_key=SecretStr(KEY)), users=1, works=False, dashboard=True
    ) as guarded:
        client = guarded.client
        digest = await digest_in(client)

        assert (await client.get(f"/assets/{digest}/app.css")).status == 200
        for path in ("/v1/overview", "/v1/runtime", "/v1/history", "/v1/live?topic=overview", "/v1/overview/dead"):
            assert (await client.get(path)).problem == "key-needed", path
            if "live" not in path:
                assert (await client.get(path, headers={"authorization": f"Bearer {KEY}"})).status == 200, path
