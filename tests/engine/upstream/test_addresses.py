"""Requests whose URL others chose reach public addresses only, however the address is written or found."""

from ipaddress import ip_address

import msgspec
import pytest
from aiohttp import web
from pydantic import ValidationError

from tests.engine.upstream.servers import close, get, raw_server, says, web_server
from tidegate.engine.upstream import AddressRefused, Request, UpstreamClient, UpstreamSettings
from tidegate.engine.upstream.addresses import PrivateHosts, is_public, parse
from tidegate.engine.upstream.redirects import redirected

OK = says(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", then=close)


def public_only(url: str) -> Request:
    return msgspec.structs.replace(get(url), public_only=True)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "LOCALHOST", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::ffff:127.0.0.1]", "0"],
)
async def test_every_spelling_of_a_private_address_is_refused(host: str, client: UpstreamClient):
    async with raw_server(OK) as server:
        with pytest.raises(AddressRefused) as refused:
            await client.fetch(public_only(f"http://{host}:{server.port}/"))
        assert (await client.fetch(get(server.url))).body == b"ok"

    assert (server.connections, refused.value.was_sent) == (1, False)


async def test_the_connected_address_is_checked_also_on_reused_connections(client: UpstreamClient):
    """Between a lookup and its use a name can be given another address; a connection can also be kept from before."""
    asked: list[str] = []

    async def note(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text="ok")

    async with web_server(note) as url:
        assert (await client.fetch(get(f"{url}/named-by-the-operator"))).status == 200
        with pytest.raises(AddressRefused):
            await client.fetch(public_only(f"{url}/from-a-page"))
        assert (await client.fetch(get(f"{url}/again"))).status == 200

    assert asked == ["/named-by-the-operator", "/again"]


@pytest.mark.parametrize("entry", ["127.0.0.1", "127.0.0.0/8", "LocalHost"])
async def test_a_listed_private_host_is_called(entry: str):
    async with raw_server(OK) as server, UpstreamClient(UpstreamSettings(private_hosts=(entry,))) as client:
        url = server.url.replace("127.0.0.1", "localhost") if entry == "LocalHost" else server.url
        assert (await client.fetch(public_only(url))).body == b"ok"


def test_a_redirect_may_stay_on_the_requested_host_or_go_to_public_hosts():
    asked = get("http://10.0.0.1/a")

    assert not redirected(asked, ["https://10.0.0.1/b"]).public_only
    assert redirected(asked, ["http://169.254.169.254/latest/meta-data"]).public_only
    assert redirected(asked, ["http://example.com/", "http://10.0.0.2/"]).public_only
    assert redirected(public_only("http://example.com/"), ["http://example.com/b"]).public_only


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.0.3", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("0.0.0.0", "0.1.2.3", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "192.0.2.1"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
        *("64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:80ff:fffe"),
        *("2130706433", "0x7f000001", "017700000001", "0x7f.0.0.1", "127.1", "0", "[::1]"),
    ],
)
def test_private_addresses_are_recognised(address: str):
    found = parse(address)
    assert found is not None
    assert not is_public(found)
    assert not PrivateHosts().permits("example.com", address)
    assert PrivateHosts().refuses(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "134744072"]
)
def test_public_addresses_are_recognised(address: str):
    assert PrivateHosts().permits("example.com", address)
    assert not PrivateHosts().refuses(address)


def test_local_host_names_are_refused_without_a_lookup():
    private = PrivateHosts(["shop.internal"])

    assert [private.refuses(name) for name in ("localhost", "a.localhost.", "db.internal", "printer.local")] == [
        True
    ] * 4
    assert [private.refuses(name) for name in ("shop.internal", "example.com", "local.example")] == [False] * 3
    assert ip_address("10.0.0.1") == parse("10.0.0.1")


@pytest.mark.parametrize("entry", ["", "10.0.0.1/8", "http://shop.internal", "a:80", "a/b"])
def test_an_invalid_host_is_refused_in_settings(entry: str):
    with pytest.raises(ValidationError):
        UpstreamSettings(private_hosts=(entry,))
