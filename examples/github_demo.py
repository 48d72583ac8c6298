"""Twenty-five users, two tokens with a small quota, and a simulated GitHub that counts every call.

    python examples/github_demo.py

Starts the simulator with small quotas, so that jobs have to wait, and collects all users as `tidegate collect` does.
Then the simulator reports the calls that were spent, those of a perfect collector, and broken limits; and the
copy is compared with its data, item by item.
"""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console

from tidegate import Settings, Subject
from tidegate.cli.running import configure_log
from tidegate.cli.wording import number
from tidegate.core.telemetry.logs import LogSettings
from tidegate.engine import CredentialLimits
from tidegate.engine.commands.collecting import collect_all
from tidegate.engine.commands.run_text import labelled, print_lines
from tidegate.engine.commands.screens import open_screen
from tidegate.engine.commands.summary import result_lines, summarise
from tidegate.engine.reports.progress import failures_of, unavailable_of
from tidegate.engine.source_cell import SourceCell
from tidegate.storage.documents import DocumentStore
from tidegate.systems.github import GithubSettings, Statistics
from tidegate.systems.github.opening import open_github
from tidegate.systems.github.stats_text import print_user
from tidegate_simulators.github import (
    ESSENTIAL,
    Behaviour,
    GithubSimulator,
    LimitSettings,
    SimulatorConfig,
    Truth,
    WorldShape,
)

USERS, QUOTA, WINDOW_S, LATENCY_MS = 25, 200, 8, 20
LIMITS = CredentialLimits(concurrency=20, floor=0, window=timedelta(seconds=WINDOW_S))
LOG = LogSettings(level="error")
CONFIG = SimulatorConfig(
    world=WorldShape(users=USERS),
    limits=LimitSettings(quota=QUOTA, window_s=WINDOW_S),
    behaviour=Behaviour(latency_ms=LATENCY_MS, events_late_s=(0, 0)),
)

console = Console(highlight=False)


def settings_for(folder: Path, simulator: GithubSimulator) -> Settings:
    """Everything embedded, in a folder of its own."""
    return Settings(data_dir=folder, gate=LIMITS, github=GithubSettings(api_url=simulator.url), log=LOG)


def items_of(truth: Truth) -> dict[str, dict[str, Any]]:
    """The data of a user, by kind and id."""
    found = truth.repositories
    return {
        "user": {str(truth.profile["id"]): truth.profile},
        "event": {event["id"]: event for event in truth.events},
        "repository": {str(each.repository["id"]): each.repository for each in found},
        "issue": {str(item["id"]): item for each in found for item in each.issues},
        "pull_request": {str(item["id"]): item for each in found for item in each.pulls},
        "commit": {f"{each.repository['id']}:{item['sha']}": item for each in found for item in each.commits},
    }


async def compare(simulator: GithubSimulator, documents: DocumentStore) -> tuple[int, list[str]]:
    """How many items are there and equal to the simulator's, and which are missing, different, or too many."""
    equal, wrong = 0, list[str]()
    for login in simulator.world.logins():
        for kind, items in items_of(simulator.truth(login)).items():
            there = {found.id: found.body async for found in documents.iterate(kind, login)}
            wrong += [f"{kind} {id_} of {login}" for id_ in sorted(items.keys() ^ there.keys())]
            same = [id_ for id_ in items.keys() & there.keys() if items[id_] == there[id_]]
            wrong += [f"{kind} {id_} of {login}" for id_ in sorted((items.keys() & there.keys()) - set(same))]
            equal += len(same)
    return equal, wrong


async def prove(simulator: GithubSimulator, documents: DocumentStore) -> bool:
    """The calls reported by the simulator, and the comparison of the copy with its data."""
    report = simulator.report(include=ESSENTIAL)
    spent, needed = sum(report.spent.values()), report.needed.core if report.needed else 0
    equal, wrong = await compare(simulator, documents)
    facts = [
        f"calls spent {number(spent)}, needed by a perfect collector {number(needed)}",
        f"limits broken {report.broken}, calls refused by a limit {report.refused}",
        f"documents equal to the simulator's {number(equal)}; missing, different or too many {number(len(wrong))}",
    ]
    print_lines(console, labelled("proof", [*facts, *wrong[:10]]))
    return report.broken == 0 and not wrong


@asynccontextmanager
async def collected(simulator: GithubSimulator, folder: Path) -> AsyncGenerator[SourceCell]:
    """Collect every user into `folder` as `tidegate collect` does. Exits where something was not collected."""
    async with open_github(settings_for(folder, simulator), needs_credential=False) as collection:
        for owner in simulator.world.operators():
            await collection.credential_manager.add_token(simulator.token_of(owner), owner=owner, name=owner)
        subjects = [Subject(user_id=login, login=login) for login in simulator.world.logins()]
        with open_screen(console, LOG, quiet=False) as screen:
            outcome = await collect_all(collection, subjects, screen)
        run_ids, read = [run.id for run in outcome.view.runs], collection.parts.database.read
        failures, unavailable = await read(failures_of, run_ids), await read(unavailable_of, run_ids)
        summary = summarise(outcome, {}, failures, collection.documents.name, unavailable=unavailable)
        print_lines(console, result_lines(summary))
        if not summary.over:
            raise SystemExit(summary.exit_code)
        yield collection


async def main() -> None:
    """Collect all users, and prove that the copy is complete."""
    configure_log(LOG)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-demo-")))
        simulator = await stack.enter_async_context(GithubSimulator(CONFIG))
        console.print(f"[bold]A simulated GitHub[/] at {simulator.url}: {USERS} users")
        console.print(f"2 tokens, each with {QUOTA} calls per {WINDOW_S} s, so waiting is seen\n")
        collection = await stack.enter_async_context(collected(simulator, folder))
        if not await prove(simulator, collection.documents.of("github")):
            raise SystemExit("the demo's own proof failed")
        if found := await collection.parts.get(Statistics).of_user(simulator.world.logins()[0]):
            console.print("\n[bold]What tidegate stats shows of one of them[/]\n")
            print_user(console, found, datetime.now(UTC))
    console.print("\nThe same with the real one: GITHUB_TOKEN=... .venv/bin/tidegate collect LOGIN")


if __name__ == "__main__":
    try:
        uvloop.run(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
