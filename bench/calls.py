"""What a collection costs, against what a perfect collector would spend; and what the same again costs."""

import tempfile
from pathlib import Path

from chaos.deployment import Servers, Site, open_site
from chaos.fleet import ForkServerClient
from chaos.servers import LosableValkey

from bench.figures import Figure, Section
from tidegate.systems.github import CONVERSATIONS
from tidegate_simulators.github import KINDS, SimulatorConfig, WorldShape

USERS = 12
MOST = 1.05
REFUSALS = ("403", "451")
"""Answers that no ETag makes free."""
LIMITS = {"concurrency": 50, "per_minute": 840, "floor": 100}


async def measure() -> Section:
    """A generated world of the usual variety: most repositories small, a few large, some odd."""
    config = SimulatorConfig(world=WorldShape(users=USERS, operators=4))
    with (
        ForkServerClient() as fork_server,
        tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder,
        LosableValkey() as valkey,
    ):
        servers = Servers(valkey_url=valkey.url)
        async with open_site(
            fork_server, Path(folder), servers, config, settings={}, limits=LIMITS, include=CONVERSATIONS
        ) as site:
            await site.working()
            await _collect(site)
            first, compared = site.github.report(None, KINDS), await site.comparison()
            await _collect(site)
            second = site.github.report()
            await site.stopped()
    assert first.needed is not None
    needed = {"core": first.needed.core, "graphql": first.needed.graphql}
    figures = [
        Figure(
            f"first run, {bucket}: spent / needed by a perfect collector",
            f"{first.spent[bucket]:,} / {calls:,} = {first.spent[bucket] / calls:.3f}",
            f"≤ {MOST}",
            first.spent[bucket] <= MOST * calls,
        )
        for bucket, calls in needed.items()
    ]
    again = sum(second.spent.values()) - sum(first.spent.values())
    refused = sum(second.by_status.get(status, 0) - first.by_status.get(status, 0) for status in REFUSALS)
    told = f"{again - refused}, and {refused} for repositories that are shown and refused ({' or '.join(REFUSALS)})"
    limits = (second.broken, second.refused)
    figures += [
        Figure("second run, nothing changed: quota spent", told, "0", again == refused),
        Figure("second run: answers of 304, which are free", f"{second.not_modified - first.not_modified:,}"),
        Figure("limits broken, and refusals by a limit", f"{limits[0]}, {limits[1]}", "0, 0", limits == (0, 0)),
        Figure(
            f"documents that differ from the truth, of {compared.documents:,}",
            f"{len(compared.differences)}",
            "0",
            not compared.differences,
        ),
    ]
    return Section(
        "Calls", figures, f"{USERS} users of a simulated GitHub, everything collected, a pool of four tokens."
    )


async def _collect(site: Site) -> None:
    await site.until_over(await site.begin(*site.logins), within_s=300)
