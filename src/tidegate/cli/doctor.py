"""`tidegate doctor`: every part of the installation tried for real, and what to do where it fails."""

import asyncio
import os
import platform
from collections.abc import AsyncIterator, Callable
from enum import StrEnum

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from tidegate import __version__
from tidegate.assembly import open_valkey
from tidegate.cli.running import load_settings, run
from tidegate.database import Database
from tidegate.database.migrate import pending_migrations
from tidegate.kernel.errors import ServerRefused, TidegateError
from tidegate.settings import Settings
from tidegate.telemetry.redaction import redact_text
from tidegate.valkey import Valkey


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    ADVICE = "advice"  # it works, and could be better
    FAILED = "failed"


_WIDTH = 27
_PATIENCE_S = 10
_IS_IT_ONE = "Is the address right, and is there the kind of server that it names?"
_COLOURS = {Verdict.OK: "green", Verdict.ADVICE: "yellow", Verdict.FAILED: "red"}


class Finding(msgspec.Struct, frozen=True):
    """One line of the report."""

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


def doctor(*, as_json: bool = typer.Option(False, "--json", help="Print the findings as JSON.")) -> None:
    """Say what is reachable, in which version, what it can do, and what to do about the rest. Exit 1 on a failure."""
    tell = _silent if as_json else _print
    findings = run(_examine_all(load_settings(), tell))
    if as_json:
        typer.echo(msgspec.json.encode(findings))
    if any(finding.verdict is Verdict.FAILED for finding in findings):
        raise typer.Exit(1)


def _print(finding: Finding) -> None:
    """A line for each finding, and under it what to do; never cut, since paths are there to be copied."""
    console, colour = Console(soft_wrap=True, highlight=False), _COLOURS[finding.verdict]
    console.print(f"[{colour}]{finding.verdict:6}[/]  {finding.check:{_WIDTH}}  {escape(finding.found)}")
    if finding.remedy:
        console.print(f"{'':6}  {'':{_WIDTH}}  [bold]→ {escape(finding.remedy)}[/]")


def _silent(_finding: Finding) -> None:
    """What is printed at the end is not printed as it is found."""


async def _examine_all(settings: Settings, tell: Callable[[Finding], None]) -> list[Finding]:
    """All parts, one after the other; one that does not answer holds the others up for a few seconds only."""
    findings: list[Finding] = []
    parts = {"tidegate": _installation, "valkey": _valkey, "database": _database}
    for name, examine in parts.items():
        try:
            async with asyncio.timeout(_PATIENCE_S):
                async for finding in examine(settings):
                    findings.append(finding)
                    tell(finding)
        except TimeoutError:
            silence = Finding(name, Verdict.FAILED, f"no answer within {_PATIENCE_S} s", _IS_IT_ONE)
            findings.append(silence)
            tell(silence)
    return findings


async def _installation(settings: Settings) -> AsyncIterator[Finding]:
    system = f"{platform.system()} {platform.machine()}"
    yield Finding("tidegate", Verdict.OK, f"{__version__} on Python {platform.python_version()}, {system}")
    folder = settings.data_dir
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        usable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        usable = False
    if usable:
        yield Finding("data folder", Verdict.OK, str(folder))
    else:
        yield Finding(
            "data folder", Verdict.FAILED, f"{folder} cannot be written", "Name another one in TIDEGATE_DATA_DIR"
        )


async def _valkey(settings: Settings) -> AsyncIterator[Finding]:
    name = "valkey (embedded)" if settings.valkey_url is None else "valkey"
    try:
        async with open_valkey(settings) as valkey:
            yield Finding(name, Verdict.OK, _describe(valkey))
            for finding in _advice(name, valkey):
                yield finding
    except (TidegateError, OSError) as error:
        yield _failure(name, error, _ask_about("TIDEGATE_VALKEY_URL", settings.valkey_url))


def _describe(valkey: Valkey) -> str:
    info = valkey.info
    reads = "blocking reads" if info.can_block else "no blocking reads"
    kind = "cluster, " if info.is_cluster else ""
    return f"{info.product} {info.version} at {valkey.address}: {kind}{reads}"


def _advice(name: str, valkey: Valkey) -> list[Finding]:
    found: list[Finding] = []
    if not valkey.info.persists:
        remedy = "Set `appendonly yes`; without it everything has to be rebuilt from SQL after a restart"
        found.append(Finding(f"{name}: persistence", Verdict.ADVICE, "no append-only file", remedy))
    if valkey.info.evicts:
        remedy = "Set `maxmemory-policy noeviction`: a key thrown away alone breaks what belongs together"
        found.append(Finding(f"{name}: memory", Verdict.ADVICE, "may evict keys", remedy))
    if not valkey.info.can_block:
        remedy = "Allow blocking commands: waiting then costs nothing and wakes at once"
        found.append(Finding(f"{name}: blocking", Verdict.ADVICE, "blocking reads are forbidden", remedy))
    return found


async def _database(settings: Settings) -> AsyncIterator[Finding]:
    name = "database (embedded)" if settings.database_url is None else "database"
    try:
        async with await Database.open(settings.effective_database_url) as database:
            server = await database.describe()
            abilities = ", ".join(sorted(server.capabilities))
            yield Finding(name, Verdict.OK, f"{server.product} {server.version} at {database.name}: {abilities}")
            missing = await pending_migrations(database)
            if not missing:
                yield Finding(f"{name}: schema", Verdict.OK, "up to date")
            elif settings.migrates_at_start:
                yield Finding(f"{name}: schema", Verdict.OK, f"{len(missing)} migration(s) will run at the next start")
            else:
                remedy = "Run `tidegate migrate`"
                yield Finding(f"{name}: schema", Verdict.FAILED, f"lacks {len(missing)} migration(s)", remedy)
    except (TidegateError, OSError) as error:
        yield _failure(name, error, _ask_about("TIDEGATE_DATABASE_URL", settings.database_url))


def _ask_about(variable: str, url: str | None) -> str:
    """What to look at first: the address that was given, else the folder where our own server lives."""
    if url is None:
        return "Can the data folder be written? Else name another one in TIDEGATE_DATA_DIR"
    return f"Is it running, and is {variable} right?"


def _failure(name: str, error: Exception, remedy: str) -> Finding:
    if isinstance(error, ServerRefused):
        return Finding(name, Verdict.FAILED, redact_text(f"{error.server}: {error.what}"), error.remedy)
    return Finding(name, Verdict.FAILED, redact_text(str(error)), remedy)
