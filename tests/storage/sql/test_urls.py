"""Addresses as people write them."""

import sys

import pytest

from tidegate.core.errors import InvalidArgument, InvalidSettings
from tidegate.storage.sql.urls import parse_address

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "dialect", "driver"),
    [
        ("sqlite:///tidegate.db", "sqlite", "sqlite+pysqlite"),
        ("sqlite:////var/lib/tidegate.db", "sqlite", "sqlite+pysqlite"),
        ("postgresql://u:p@h/d", "postgresql", "postgresql+asyncpg"),
        ("postgres://u:p@h/d", "postgresql", "postgresql+asyncpg"),
        ("postgresql+asyncpg://u:p@h/d", "postgresql", "postgresql+asyncpg"),
        ("mysql://u:p@h/d", "mysql", "mysql+asyncmy"),
        ("mariadb://u:p@h/d", "mysql", "mysql+asyncmy"),
    ],
)
def test_the_driver_is_added_to_the_url(url: str, dialect: str, driver: str) -> None:
    address = parse_address(url)
    assert (address.dialect, address.url.drivername) == (dialect, driver)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "tidegate.db",
        "oracle://u:hunter2@h/d",
        "postgresql+psycopg://u:hunter2@h/d",
        "postgresql://u:hunter2@h:port/d",
        "postgresql://u:hunter2@h",
        "mysql://u:hunter2@h/?password=hunter2",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///a.db?mode=ro",
        "sqlite:///file:a.db",
    ],
)
def test_an_invalid_url_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        parse_address(url)
    assert SECRET not in str(refusal.value)


def test_the_display_name_has_no_password() -> None:
    address = parse_address(f"postgresql://user:{SECRET}@host:5432/db?password={SECRET}&sslmode=require")
    assert SECRET not in address.shown
    assert "host:5432/db" in address.shown


def test_sslmode_is_interpreted_like_by_libpq() -> None:
    query = parse_address("postgresql://u:p@h/d?sslmode=require").url.query
    assert query == {"ssl": "require"}


@pytest.mark.parametrize(
    ("url", "driver", "extra"),
    [("postgresql://h/d", "asyncpg", "postgres"), ("mariadb://h/d", "asyncmy", "mysql")],
)
def test_a_missing_driver_is_reported_with_the_extra_to_install(
    url: str, driver: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(InvalidSettings, match=rf'pip install "tidegate\[{extra}\]"'):
        parse_address(url)
