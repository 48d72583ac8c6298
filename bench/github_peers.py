"""Tidegate and other collectors, each as installed, with the same simulated GitHub, which counts.

Each collects the issues, pull requests and commits of 20 repositories with one token; Perceval takes commits from a
clone, so it collects the rest. The simulator counts what was taken from the quota, calls that broke a limit, and
refusals. Complete: every item of the truth was stored, by its id. Requests of the peers to `api.github.com` are sent
to the simulator by a few lines below their HTTP library; `GET /rate_limit` and answers 304 cost nothing.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bench.figures import Figure, Section
from tidegate.storage.documents import SqlDocuments
from tidegate.storage.sql import Database
from tidegate_simulators.github import (
    Behaviour,
    GithubSimulator,
    LimitSettings,
    Report,
    SimulatorConfig,
    Sizes,
    WorldShape,
    parse_faults,
)

ROOT = Path(__file__).parents[1]
RUNNERS = Path(__file__).parent / "peers" / "github"
ENVIRONMENTS = ROOT / ".github_peers"
TIDEGATE = "Tidegate"
PEERS = {
    "meltano": ("Meltano's tap-github", "meltanolabs-tap-github"),
    "singer": ("Singer's tap-github", "tap-github"),
    "dlt": ("dlt, REST API source", "dlt"),
    "airbyte": ("Airbyte's source-github", "airbyte-source-github"),
    "pygithub": ("script with PyGithub", "PyGithub"),
    "perceval": ("Perceval, without commits", "perceval"),
}
"""By environment: what it is, and its package."""
SHAPE = WorldShape(
    users=1, operators=1, repositories=20, sizes=Sizes(issues=40, pulls=20, commits=140), events=0, quirks=False
)
NEEDED = 1 + 20 * (1 + 1 + 2)
"""Calls of a collector that lists the repositories once and reads each page once."""
QUOTA, WINDOW_S = 60, 10
FAULTS = "502=0.02,reset=0.01,html=0.01,truncated=0.01"
WITHIN_S = 150

Ids = dict[str, set[str]]


@dataclass(frozen=True)
class Ended:
    """A run: what the simulator counted, which items are stored after it, and whether all are."""

    code: int | None
    spent: int
    broken: int
    refused: int
    missing: int
    """Items of the truth that are not stored."""

    @property
    def shown(self) -> str:
        """What became of the run."""
        state = "complete" if not self.missing else f"**{self.missing:,} items missing**"
        if self.code is None:
            state += f", stopped after {WITHIN_S} s"
        elif self.code:
            state += f", exit code {self.code}"
        limits = f", **{self.broken} calls broke a limit**" if self.broken else ""
        return f"{self.spent:,} calls, {state}{limits}" + (f", {self.refused} refused" if self.refused else "")


class Collector:
    """One collector with a folder of its own and one simulator."""

    def __init__(self, name: str, folder: Path, github: GithubSimulator) -> None:
        self._name, self._folder, self.github = name, folder, github
        self._login = github.world.logins()[0]
        found = github.world.repositories_of(github.world.require_account(self._login))
        self.repositories = [one.full_name for one in found]
        self._token = github.token_of(github.world.operators()[0])

    async def run(self, *, kill_after: int | None = None) -> Ended:
        """Run to the end, or until `kill_after` calls came and it is killed with -9."""
        before = self.github.report()
        process = await self._start()
        code: int | None = None
        try:
            async with asyncio.timeout(WITHIN_S):
                if kill_after is not None:
                    await self._kill(process, before.calls + kill_after)
                code = await process.wait()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        after, stored = self.github.report(), await self._stored()
        truth = self._truth()
        return Ended(
            code=code,
            spent=_spent(after) - _spent(before),
            broken=after.broken - before.broken,
            refused=after.refused - before.refused,
            missing=sum(len(ids - stored[kind]) for kind, ids in truth.items()),
        )

    async def _kill(self, process: Process, calls: int) -> None:
        while self.github.report().calls < calls and process.returncode is None:
            await asyncio.sleep(0.005)
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)

    async def _start(self) -> Process:
        keep = ("PATH", "LANG", "TMPDIR", "PYTHONPATH")
        quiet = {"DO_NOT_TRACK": "1", "RUNTIME__DLTHUB_TELEMETRY": "false", "NO_PROXY": "127.0.0.1"}
        environment = {name: os.environ[name] for name in keep if name in os.environ} | quiet
        environment |= {"HOME": str(self._folder)}
        if self._name == TIDEGATE:
            environment |= {"GITHUB_TOKEN": self._token, "TIDEGATE_DATA_DIR": str(self._folder / "data")}
            command = [str(Path(sys.executable).with_name("tidegate")), "collect", self._login]
            command += ["--api-url", self.github.url, "--kinds", "issues,pulls,commits"]
        else:
            python = ENVIRONMENTS / self._name / "bin" / "python"
            script = RUNNERS / f"run_{self._name}.py"
            command = [str(python), str(script), self.github.url, self._token, str(self._folder), self._login]
            command += self.repositories
        with (self._folder / "log.txt").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *command, env=environment, cwd=self._folder, stdout=log, stderr=log, start_new_session=True
            )

    async def _stored(self) -> Mapping[str, set[str]]:
        stored: defaultdict[str, set[str]] = defaultdict(set)
        if self._name == TIDEGATE:
            async with await Database.open(f"sqlite:///{self._folder / 'data' / 'tidegate.db'}") as database:
                documents = SqlDocuments(database).of("github")
                for kind in ("issue", "pull_request", "commit"):
                    async for one in documents.iterate(kind):
                        if "pull_request" not in one.body:
                            stored[kind].add(str(one.body.get("sha") or one.body["id"]))
            return stored
        records = self._folder / "records.jsonl"
        for line in records.read_text().splitlines() if records.exists() else []:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:  # a line that a kill cut off
                continue
            stored[record["kind"]].add(record["id"])
        return stored

    def _truth(self) -> Ids:
        found = self.github.truth(self._login).repositories
        truth = {
            "issue": {str(item["id"]) for each in found for item in each.issues if "pull_request" not in item},
            "pull_request": {str(item["id"]) for each in found for item in each.pulls},
            "commit": {item["sha"] for each in found for item in each.commits},
        }
        return {kind: ids for kind, ids in truth.items() if (self._name, kind) != ("perceval", "commit")}


def installed_collectors() -> list[str]:
    """Tidegate, and the peers that are installed on this machine."""
    return [TIDEGATE, *(name for name in PEERS if (ENVIRONMENTS / name / "bin" / "python").exists())]


async def measure() -> Section:
    names = installed_collectors()
    results = {name: await _measured(name) for name in names}
    rows = {
        "first run": "all at once",
        "again, nothing changed": "unchanged",
        f"{QUOTA} calls in {WINDOW_S} s": "quota",
        f"faults ({FAULTS.replace(',', ', ')})": "faults",
        "killed with -9 after half of its calls, and run again": "kill",
        "three repositories that are listed and refused": "withheld",
        "the same again": "withheld again",
    }
    figures = [
        Figure(f"{what}: {name_of(name)}", results[name][scenario].shown, *_verdict(name, scenario, results[name]))
        for what, scenario in rows.items()
        for name in names
    ]
    absent = [what for name, (what, _) in PEERS.items() if name not in names]
    note = f" Not installed here: {', '.join(absent)}." if absent else ""
    return Section("GitHub peers", figures, (__doc__ or "").partition("\n\n")[2].strip().replace("\n", " ") + note)


def _verdict(name: str, scenario: str, results: Mapping[str, Ended]) -> tuple[str, bool | None]:
    if name != TIDEGATE:
        return "", None
    ended = results[scenario]
    most = {"all at once": NEEDED + 2, "unchanged": 0, "withheld again": 0}.get(scenario)
    is_met = not ended.missing and not ended.broken and (most is None or ended.spent <= most)
    return "complete, no limit broken" + ("" if most is None else f", ≤ {most} calls"), is_met


async def _measured(name: str) -> dict[str, Ended]:
    ended: dict[str, Ended] = {}
    async with prepare_collector(name) as it:
        ended["all at once"] = await it.run()
        ended["unchanged"] = await it.run()
    limits = LimitSettings(quota=QUOTA, window_s=WINDOW_S)
    async with prepare_collector(name, limits=limits) as it:
        ended["quota"] = await it.run()
    behaviour = Behaviour(error_pause_s=0, hang_s=0, drip_s=0, faults=parse_faults(FAULTS))
    async with prepare_collector(name, behaviour=behaviour) as it:
        ended["faults"] = await it.run()
    async with prepare_collector(name) as it:
        await it.run(kill_after=ended["all at once"].spent // 2)
        again = await it.run()
        ended["kill"] = again
    async with prepare_collector(name) as it:
        gone, blocked, taken_down = it.repositories[3:6]
        it.github.mutate.delete(gone, still_listed=True)
        it.github.mutate.block(blocked)
        it.github.mutate.take_down(taken_down)
        ended["withheld"] = await it.run()
        ended["withheld again"] = await it.run()
    return ended


@asynccontextmanager
async def prepare_collector(
    name: str, limits: LimitSettings | None = None, behaviour: Behaviour | None = None
) -> AsyncGenerator[Collector]:
    """A collector with an empty folder and a simulator of its own."""
    config = SimulatorConfig(world=SHAPE, limits=limits or LimitSettings(), behaviour=behaviour or Behaviour())
    async with GithubSimulator(config) as github:
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            yield Collector(name, Path(folder), github)


def _spent(report: Report) -> int:
    return sum(report.spent.values())


def name_of(name: str) -> str:
    """The collector with its version."""
    if name == TIDEGATE:
        return f"{TIDEGATE} {version('tidegate')}"
    what, package = PEERS[name]
    installed = next((ENVIRONMENTS / name).glob(f"lib/*/site-packages/{package.replace('-', '_')}-*.dist-info"), None)
    if installed is None:
        installed = next((ENVIRONMENTS / name).glob(f"lib/*/site-packages/{package.lower()}-*.dist-info"))
    return f"{what} {installed.name.removesuffix('.dist-info').rpartition('-')[2]}"
