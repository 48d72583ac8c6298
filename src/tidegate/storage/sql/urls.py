"""Database addresses as people write them, made into what the drivers want."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from tidegate.core.errors import InvalidArgument, InvalidSettings

Dialect = Literal["sqlite", "postgresql", "mysql"]


@dataclass(frozen=True)
class _Driver:
    dialect: Dialect
    name: str
    extra: str | None


_SQLITE = _Driver("sqlite", "pysqlite", None)
_POSTGRES = _Driver("postgresql", "asyncpg", "postgres")
_MYSQL = _Driver("mysql", "asyncmy", "mysql")

_DRIVERS = {
    "sqlite": _SQLITE,
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "mysql": _MYSQL,
    # The server says whether it is MySQL or MariaDB; one dialect speaks to both.
    "mariadb": _MYSQL,
}


@dataclass(frozen=True)
class DatabaseAddress:
    """Where a database is, in the driver's words (`url`) and in words fit for a message (`shown`)."""

    dialect: Dialect
    url: URL
    shown: str


def parse_address(url: str) -> DatabaseAddress:
    """The address in `url`, its driver filled in.

    Raises `InvalidArgument` for an invalid address, and `InvalidSettings` when the driver is not installed.
    Neither shows a password, nor the options, which may hold one.
    """
    parsed = _parsed(url)
    # Every message below uses this form, which has neither password nor options.
    shown = _shown(parsed)
    scheme, _, asked = parsed.drivername.partition("+")
    driver = _DRIVERS.get(scheme)
    if driver is None:
        raise InvalidArgument("url", shown, f"must begin with one of {', '.join(f'{name}://' for name in _DRIVERS)}")
    if asked not in ("", driver.name):
        raise InvalidArgument("url", shown, f"must not name the driver {asked!r}; leave it out")
    _require_installed(driver, shown)
    completed = parsed.set(drivername=f"{driver.dialect}+{driver.name}")
    if driver is _SQLITE:
        _require_file(completed, shown)
    elif not completed.database:
        raise InvalidArgument("url", shown, "must name a database after the host")
    return DatabaseAddress(driver.dialect, _with_driver_options(completed), shown)


def _parsed(url: str) -> URL:
    if not url:
        raise InvalidArgument("url", url, "must not be empty")
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        # The text may hold a password in a place we cannot find: show nothing of it.
        raise InvalidArgument("url", "…", "is not of the form dialect://user:password@host:port/database") from None


def _shown(url: URL) -> str:
    return url.set(password=None, query={}, drivername=url.drivername.partition("+")[0]).render_as_string()


def _require_installed(driver: _Driver, shown: str) -> None:
    if driver.extra is not None and find_spec(driver.name) is None:
        raise InvalidSettings(f'{shown} needs the driver {driver.name}: pip install "tidegate[{driver.extra}]"')


def _require_file(url: URL, shown: str) -> None:
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise InvalidArgument("url", shown, "must name a file, which several connections share: sqlite:///path/to/file")
    if url.query:
        raise InvalidArgument("url", shown, "must not have options after the file's name")


def _with_driver_options(url: URL) -> URL:
    match url.get_backend_name():
        case "postgresql" if "sslmode" in url.query:
            # The usual parameter of libpq; asyncpg takes the same values under another name.
            mode = str(url.query["sslmode"])
            return url.difference_update_query(["sslmode"]).update_query_dict({"ssl": mode})
        case "mysql":
            return url.update_query_dict({"charset": "utf8mb4"})
        case _:
            return url
