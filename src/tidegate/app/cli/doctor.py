"""`tidegate doctor`: tests each part of the installation, and gives advice on failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.core.findings import CheckResult, Finding

if TYPE_CHECKING:
    from tidegate.settings import Settings

_WIDTH = 27
_PATIENCE_S = 10
_IS_IT_ONE = "Check the address, and that a server of this type listens there."
_COLOURS = {CheckResult.OK: "green", CheckResult.ADVICE: "yellow", CheckResult.FAILED: "red"}


def doctor(*, as_json: bool = typer.Option(False, "--json", help="Print the findings as JSON.")) -> None:
    """Check the installation: disk space, file permissions, servers, credentials and upstreams. Exit code 1 on failure.

    Each line is one finding; problems have advice.
    """
    tell = _silent if as_json else _print
    findings = run(_examine_all(load_settings(), tell))
    if as_json:
        typer.echo(msgspec.json.encode(findings))
    if any(finding.verdict is CheckResult.FAILED for finding in findings):
        raise typer.Exit(1)


def _print(finding: Finding) -> None:
    """Print a finding and its advice; lines are never truncated, so that paths can be copied."""
    from rich.console import Console
    from rich.markup import escape

    console, colour = Console(soft_wrap=True, highlight=False), _COLOURS[finding.verdict]
    console.print(f"[{colour}]{finding.verdict:6}[/]  {finding.check:{_WIDTH}}  {escape(finding.found)}")
    if finding.remedy:
        console.print(f"{'':6}  {'':{_WIDTH}}  [bold]→ {escape(finding.remedy)}[/]")


def _silent(_finding: Finding) -> None:
    """Used with `--json`, which prints all findings at the end."""


async def _examine_all(settings: Settings, tell: Callable[[Finding], None]) -> list[Finding]:
    """Run all checks in sequence; a check that gets no answer ends after a few seconds."""
    findings: list[Finding] = []
    for name, examine in _checks(settings).items():
        try:
            # Findings are shown as they come, and one server that hangs does not stop the other checks.
            async with asyncio.timeout(_PATIENCE_S):
                async for finding in examine(settings):
                    findings.append(finding)
                    tell(finding)
        except TimeoutError:
            silence = Finding(name, CheckResult.FAILED, f"no answer within {_PATIENCE_S} s", _IS_IT_ONE)
            findings.append(silence)
            tell(silence)
    return findings


def _checks(settings: Settings) -> dict[str, Callable[[Settings], AsyncIterator[Finding]]]:
    """All checks in order, with those of the systems; file permissions come after the checks that create files."""
    from tidegate.app.cli import doctor_checks
    from tidegate.system import enabled_systems

    return {
        "tidegate": doctor_checks.installation,
        "valkey": doctor_checks.valkey,
        "database": doctor_checks.database,
        "documents": doctor_checks.documents,
        **{name: check for system in enabled_systems(settings) for name, check in system.doctor_checks().items()},
        "files": doctor_checks.permissions,
    }
