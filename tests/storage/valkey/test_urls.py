"""Addresses: what is accepted, what is refused, and what of them may be seen."""

import pytest

from tidegate.core.errors import InvalidArgument
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.urls import without_password


@pytest.mark.parametrize(
    ("url", "address", "is_cluster"),
    [
        ("redis://localhost", "redis://localhost", False),
        ("redis://cache:6380/3", "redis://cache:6380/3", False),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0", False),
        ("redis://:s3cret@cache:6379/0", "redis://:***@cache:6379/0", False),
        ("redis://app:s3cret@cache", "redis://app:***@cache", False),
        ("rediss://app:s%2Fcret%40@cache:6379", "rediss://app:***@cache:6379", False),
        ("rediss://cache?ssl_ca_certs=/etc/ca.pem", "rediss://cache?ssl_ca_certs=/etc/ca.pem", False),
        ("unix:///run/valkey.sock", "unix:///run/valkey.sock", False),
        ("unix:///run/with%20blank/valkey.sock?db=2", "unix:///run/with%20blank/valkey.sock?db=2", False),
        ("unix://app:s3cret@/run/valkey.sock", "unix://app:***@/run/valkey.sock", False),
        ("redis+cluster://app:s3cret@node:7000", "redis+cluster://app:***@node:7000", True),
        ("rediss+cluster://node:7000/0", "rediss+cluster://node:7000/0", True),
    ],
)
def test_every_form_of_url_is_accepted_and_shown_without_its_password(url: str, address: str, is_cluster: bool):
    valkey = Valkey(url)
    assert (valkey.address, valkey.is_cluster) == (address, is_cluster)
    assert "cret" not in without_password(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "must start with one of"),
        ("localhost:6379", "must start with one of"),
        ("http://localhost", "must start with one of"),
        ("postgresql://app:s3cret@db/app", "must start with one of"),
        ("redis+sentinel://localhost", "must start with one of"),
        ("redis://", "names no host"),
        ("redis+cluster://", "names no host"),
        ("unix://", "names no socket"),
        ("redis://cache:port", "cannot be read"),
        ("redis://cache:99999", "cannot be read"),
        ("redis://[::1", "cannot be read"),
        ("redis://app:12s3cret#34@cache", "cannot be read"),
        ("redis://app:12#s3cret@cache", "cannot be read"),
        ("redis://app:12/s3cret@cache", "cannot be read"),
        ("redis://app:12?s3cret@cache", "cannot be read"),
        ("redis://:s3cret@cache/first", "is no number"),
        ("redis://cache?db=-1", "is no number"),
        ("redis://cache?password=s3cret", "password is no option"),
        ("redis://cache?socket_timeout=1", "socket_timeout is no option"),
        ("redis://cache?ssl_ca_certs=/etc/ca.pem", "ssl_ca_certs is no option"),
        ("redis+cluster://:s3cret@node:7000/1", "no numbered databases"),
    ],
)
def test_an_invalid_url_is_refused_without_showing_its_password(url: str, reason: str):
    with pytest.raises(InvalidArgument, match=reason) as refusal:
        Valkey(url)
    assert "s3cret" not in str(refusal.value)
    assert refusal.value.name == "url"
