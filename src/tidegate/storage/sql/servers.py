"""Reads product, version and capabilities of a database server, and checks that it is supported."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from tidegate.core.errors import ServerRefused
from tidegate.storage.sql.transaction import Transaction

Version = tuple[int, ...]

_OLDEST: dict[str, Version] = {
    "sqlite": (3, 35),
    "postgresql": (13,),
    "mysql": (8, 0, 16),
    "mariadb": (10, 6),
}

_CAPABILITIES = {
    "sqlite": frozenset({"returning", "transactional ddl", "one writer"}),
    "postgresql": frozenset({"returning", "transactional ddl", "skip locked", "advisory locks"}),
    "mysql": frozenset({"json_table", "skip locked", "named locks"}),
    "mariadb": frozenset({"returning", "json_table", "skip locked", "named locks"}),
}

_QUESTIONS = {
    "sqlite": "SELECT sqlite_version(), 'off'",
    "postgresql": "SELECT current_setting('server_version'), current_setting('transaction_read_only')",
    "mysql": "SELECT VERSION(), @@global.read_only",
}


@dataclass(frozen=True)
class Server:
    """A database server: which one it is (`mariadb` has its own name here), its version, what it can do."""

    product: str
    version: str
    capabilities: frozenset[str]
    read_only: bool

    def require_usable(self, shown: str) -> None:
        """Raise `ServerRefused` when it is older than what we are tested with, or takes no writes."""
        oldest = _OLDEST[self.product]
        if _numbers(self.version) < oldest:
            needed = ".".join(map(str, oldest))
            raise ServerRefused(
                shown,
                f"it is {self.product} {self.version}, and {needed} is the oldest that works",
                remedy="Upgrade the server",
            )
        if self.read_only:
            raise ServerRefused(shown, "it is read-only", remedy="Point the URL at the primary server")


def ask_server(tx: Transaction) -> Server:
    """Ask the server at the other end."""
    version, read_only = _answer(tx)
    product = "mariadb" if "mariadb" in version.lower() else str(tx.dialect)
    return Server(product, version.split("-")[0].split(" ")[0], _CAPABILITIES[product], read_only=read_only)


def _answer(tx: Transaction) -> tuple[str, bool]:
    row: Any = tx.execute(text(_QUESTIONS[tx.dialect])).one()
    return str(row[0]), str(row[1]).lower() not in ("0", "off")


def _numbers(version: str) -> Version:
    digits = ("".join(c for c in part if c.isdigit()) for part in version.split("."))
    return tuple(int(part) for part in digits if part)
