"""Who may come in, and where it may listen."""

import socket
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr, ValidationError

from tests.http.serving import Served, served
from tidegate.core.errors import InvalidSettings
from tidegate.http import Binding
from tidegate.http.authentication import is_loopback, without_port
from tidegate.http.callers import Keyring
from tidegate.http.settings import HttpSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY, OTHER, WRONG = "k" * 32, "o" * 40, "w" * 32
OPEN = ("/healthz", "/readyz")


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def locked(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    http = HttpSettings(api_key=SecretStr(KEY), api_keys=(SecretStr(OTHER),))
    async with served(tmp_path_factory.mktemp("locked"), http=http, works=False, has_token=False) as started:
        yield started


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(WRONG),
        bearer(KEY[:-1]),
        bearer(KEY + "k"),
        bearer(""),
        bearer(KEY.upper()),
        {"authorization": f"Basic {KEY}"},
        {"authorization": KEY},
        {"x-api-key": KEY},
        {"authorization": "Bearer \xff\xfe"},
    ],
    ids=range(10),
)
async def test_with_a_key_configured_only_public_routes_answer_without_it(headers: dict[str, str], locked: Served):
    closed = ("/v1/runs", "/metrics", "/docs", "/openapi.json", "/nothing")
    for method, path in (("POST", "/v1/runs"), *(("GET", each) for each in closed)):
        answer = await locked.client.ask(method, path, headers=headers)
        assert (answer.status, answer.problem) == (401, "key-needed"), path
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert KEY.encode() not in answer.body
    for path in OPEN:
        assert (await locked.client.when_available(path, headers=headers)).status == 200, path


@pytest.mark.parametrize("headers", [bearer(KEY), bearer(OTHER), {"authorization": f"bearer   {KEY}"}])
async def test_every_configured_key_is_accepted(headers: dict[str, str], locked: Served):
    for path in ("/v1/runs", "/v1/credentials", "/metrics", "/docs", "/openapi.json", *OPEN):
        assert (await locked.client.when_available(path, headers=headers)).status == 200, path
    assert (await locked.client.get("/nothing", headers=headers)).status == 404


async def test_with_a_key_configured_any_host_name_is_accepted(locked: Served):
    headers = bearer(KEY) | {"host": "tidegate.example.com"}

    assert (await locked.client.get("/v1/runs", headers=headers)).status == 200


async def test_metrics_can_be_made_public(tmp_path_factory: pytest.TempPathFactory):
    http = HttpSettings(api_key=SecretStr(KEY), open_metrics=True)
    async with served(tmp_path_factory.mktemp("open"), http=http, works=False, has_token=False) as opened:
        assert (await opened.client.get("/metrics")).status == 200
        assert (await opened.client.get("/v1/runs")).status == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8321", "127.0.0.1.evil.example", "0.0.0.0", "10.1.2.3"])
async def test_without_a_key_a_page_using_dns_rebinding_is_refused(host: str, deployment: Served):
    for path in ("/v1/runs", "/metrics", "/healthz", "/docs"):
        answer = await deployment.client.get(path, headers={"host": host})
        assert (answer.status, answer.problem) == (403, "foreign-host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8321", "127.9.9.9", "[::1]:8321", "[::1]"])
async def test_without_a_key_every_local_host_name_is_accepted(host: str, deployment: Served):
    assert (await deployment.client.get("/v1/runs", headers={"host": host})).status == 200


async def test_an_allowed_host_name_is_accepted(tmp_path_factory: pytest.TempPathFactory):
    http = HttpSettings(allowed_hosts=("tide.local",))
    async with served(tmp_path_factory.mktemp("named"), http=http, works=False, has_token=False) as named:
        assert (await named.client.get("/v1/runs", headers={"host": "Tide.local:8321"})).status == 200
        assert (await named.client.get("/v1/runs", headers={"host": "other.local"})).status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
async def test_a_page_of_another_site_cannot_act(headers: dict[str, str], deployment: Served):
    for method, path in (("POST", "/v1/runs/1/cancel"), ("POST", "/v1/runs"), ("DELETE", "/v1/credentials/x")):
        answer = await deployment.client.ask(method, path, headers=headers)
        assert (answer.status, answer.problem) == (403, "foreign-origin")
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_without_a_key_another_site_may_link_here_but_not_send_requests(site: str, deployment: Served):
    """It could not read the answer; but some questions cost us something, and streams last."""
    for path in ("/v1/runs", "/metrics", "/openapi.json"):
        asked = await deployment.client.get(path, headers={"sec-fetch-site": site, "sec-fetch-mode": "no-cors"})
        assert (asked.status, asked.problem) == (403, "foreign-origin")
    led = await deployment.client.get("/docs", headers={"sec-fetch-site": site, "sec-fetch-mode": "navigate"})
    assert led.status == 200


async def test_a_page_of_the_own_site_can_act(deployment: Served):
    ours = {"origin": deployment.client.url, "sec-fetch-site": "same-origin"}

    assert (await deployment.client.post("/v1/runs/4711/cancel", headers=ours)).status == 404


def taken() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "not-loopback"])
async def test_without_a_key_only_local_addresses_are_bound(host: str, monkeypatch: pytest.MonkeyPatch):
    if host == "not-loopback":  # a name that stands for this machine, and for an address that others can reach
        found: list[Any] = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in ("127.0.0.1", "192.0.2.7")
        ]

        def resolve(*_: object, **__: object) -> list[Any]:
            return found

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(InvalidSettings, match="TIDEGATE_HTTP__API_KEY") as refused:
        Binding(HttpSettings(host=host, port=0))

    assert "needs an API key" in str(refused.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "localhost"])
async def test_with_a_key_any_address_is_bound_and_reported(host: str):
    with Binding(HttpSettings(host=host, port=0, api_key=SecretStr(KEY))) as binding:
        assert binding.port > 0
        assert binding.address == f"{host}:{binding.port}"
        assert binding.url.endswith(f":{binding.port}")
        assert "0.0.0.0" not in binding.url
        socket.create_connection(("127.0.0.1", binding.port), timeout=5).close()


async def test_a_port_in_use_is_reported_in_one_sentence():
    with taken() as other:
        port = other.getsockname()[1]
        with pytest.raises(InvalidSettings) as refused:
            Binding(HttpSettings(port=port))

    assert str(refused.value) == (
        f"cannot listen on 127.0.0.1:{port}: the port is in use by another program. "
        "Choose another with --port or TIDEGATE_HTTP__PORT"
    )


@pytest.mark.parametrize(
    ("host", "reason"),
    [("192.0.2.1", "not an address of this machine"), ("no.such.host.invalid", "the host name is not known")],
)
async def test_an_address_that_cannot_be_bound_is_reported(host: str, reason: str):
    with pytest.raises(InvalidSettings, match=reason):
        Binding(HttpSettings(host=host, port=0, api_key=SecretStr(KEY)))


async def test_closed_sockets_are_reopened_on_the_same_port():
    with Binding(HttpSettings(port=0)) as binding:
        before = binding.port
        for each in binding.sockets():
            each.close()
        assert [each.getsockname()[1] for each in binding.sockets()] == [before]


@pytest.mark.parametrize("key", ["", "short", "with a space in the middle", "ümlaut" * 5, "tab\t" * 5])
async def test_a_weak_or_unsendable_key_is_refused(key: str):
    with pytest.raises(ValidationError, match="printable ASCII"):
        HttpSettings(api_key=SecretStr(key))
    with pytest.raises(ValidationError, match="printable ASCII"):
        HttpSettings(api_keys=(SecretStr(KEY), SecretStr(key)))
    with pytest.raises(ValidationError, match="printable ASCII"):
        HttpSettings(read_keys=(SecretStr(KEY), SecretStr(key)))


async def test_a_key_with_two_roles_is_refused():
    for others in ({"api_key": SecretStr(KEY)}, {"api_keys": (SecretStr(OTHER), SecretStr(KEY))}):
        with pytest.raises(ValidationError, match="must not also be in"):
            HttpSettings.model_validate({**others, "read_keys": (SecretStr(KEY),)})


async def test_a_read_only_key_enables_authentication():
    """Others than this machine may connect, and nobody gets anything without it."""
    with Binding(HttpSettings(host="0.0.0.0", port=0, read_keys=(SecretStr(KEY),))) as binding:
        assert not binding.is_local


async def test_the_repr_of_settings_hides_keys():
    settings = HttpSettings(api_key=SecretStr(KEY), api_keys=(SecretStr(OTHER),), read_keys=(SecretStr(WRONG),))
    shown = f"{settings} {settings!r} {settings.model_dump_json()} {Keyring(settings).keys}"

    assert not any(key in shown for key in (KEY, OTHER, WRONG))
    assert set(settings.keys) == {KEY, OTHER, WRONG}
    assert settings.keys_to_read == (WRONG,)


async def test_host_names_are_separated_from_ports():
    assert [without_port(host) for host in ("a:1", "[::1]:1", "[::1]", "a", "")] == ["a", "::1", "::1", "a", ""]
    assert all(map(is_loopback, ("127.0.0.1", "127.255.255.254", "::1", "localhost")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil")))
