"""The start of a command: CPU time of commands that do little, compared with importing their libraries alone."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.figures import Figure, Section

ROUNDS = 5
LIBRARIES = "import sqlalchemy, redis, typer, rich, msgspec"
COMMANDS = ("runs list", "schedules list", "credentials list", "campaign list", "settings", "doctor")
HELPS = ("--help", "runs --help", "crawl --help", "snapshots --help", "doctor --help", "up --help")
MOST_TIMES, MOST_HELP_S = 3.0, 0.25


async def measure() -> Section:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        environment = _environment(Path(folder))
        start = [str(Path(sys.executable).with_name("tidegate"))]
        wanted = {name: [*start, *name.split()] for name in (*COMMANDS, *HELPS)}
        cpu, wall = _measure({"libraries": [sys.executable, "-c", LIBRARIES], **wanted}, environment)
    libraries = cpu["libraries"]
    figures = [Figure(f"`python -c '{LIBRARIES}'`", f"{libraries * 1000:.0f} ms of CPU")]
    for name in COMMANDS:
        times = cpu[name] / libraries
        told = f"{cpu[name] * 1000:.0f} ms of CPU, {times:.1f}x"
        figures.append(Figure(f"`tidegate {name}`", told, f"≤ {MOST_TIMES:.0f}x", times <= MOST_TIMES))
    for name in HELPS:
        told = f"{wall[name] * 1000:.0f} ms, {cpu[name] * 1000:.0f} ms of CPU"
        figures.append(Figure(f"`tidegate {name}`", told, f"≤ {MOST_HELP_S * 1000:.0f} ms", wall[name] <= MOST_HELP_S))
    note = f"Embedded servers, nothing stored, compiled files present; the best of {ROUNDS} rounds."
    return Section("Start of a command", figures, note)


def _environment(folder: Path) -> dict[str, str]:
    """A data folder that only this user may read, and compiled files, regardless of the environment."""
    without = ("PYTHONDONTWRITEBYTECODE", "GITHUB_TOKEN")
    given = {name: value for name, value in os.environ.items() if name not in without}
    return given | {"TIDEGATE_DATA_DIR": str(folder / "data")}


def _measure(commands: dict[str, list[str]], environment: dict[str, str]) -> tuple[dict[str, float], dict[str, float]]:
    """The least CPU and the least time of each command, in seconds."""
    cpu, wall = dict.fromkeys(commands, float("inf")), dict.fromkeys(commands, float("inf"))
    for number in range(ROUNDS + 1):
        for name, command in commands.items():
            began = time.perf_counter()
            process = subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=tempfile.gettempdir(),
            )
            _, _, used = os.wait4(process.pid, 0)
            process.returncode = 0  # it was waited for
            if number:  # the first round compiles, and makes the database
                wall[name] = min(wall[name], time.perf_counter() - began)
                cpu[name] = min(cpu[name], used.ru_utime + used.ru_stime)
    return cpu, wall
