"""The share of the quota that is used while work waits, as counted by the upstream.

A simulated GitHub counts. Its windows last seconds instead of an hour; what depends on their length is scaled alike:
how long a job waits for the token it had (a minute of an hour). A window of 300 calls keeps a floor of 30, so 270 can
be used. Windows during which the work ended do not count: nothing waited.
"""

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from chaos.deployment import Servers, open_site
from chaos.fleet import ForkServerClient
from chaos.servers import LosableValkey

from bench.figures import Figure, Section
from tidegate_simulators.github import Behaviour, LimitSettings, Report, SimulatorConfig, Sizes, WindowUse, WorldShape

QUOTA, FLOOR, WINDOW_S = 300, 30, 4
WINDOWS = 6
"""That are filled, of each token."""
LATENCY_MS, AT_ONCE = 40, 20
REPOSITORIES = 20
TARGET = 98.0
LIMITS = {
    "concurrency": AT_ONCE,
    "per_minute": 1_000_000,  # minutes are longer than windows here
    "floor": FLOOR,
    "floor_share": FLOOR / QUOTA,
    "window": WINDOW_S,
    "patience": WINDOW_S / 60,
}


async def measure() -> Section:
    figures: list[Figure] = []
    with ForkServerClient() as fork_server:
        for tokens in (1, 2):
            figures += _figures(tokens, await _collect(fork_server, tokens))
    return Section(
        "Quota",
        figures,
        f"Windows of {QUOTA} calls and {WINDOW_S} s, floor {FLOOR}; answers take {LATENCY_MS} ms; one worker process.",
    )


async def _collect(fork_server: ForkServerClient, tokens: int) -> Report:
    """Enough work for some windows of each token, done by one worker."""
    calls_per_user = 3 + 3 * REPOSITORIES
    users = -(-(WINDOWS + 1) * tokens * (QUOTA - FLOOR) // calls_per_user)
    shape = WorldShape(
        users=users,
        operators=tokens,
        repositories=REPOSITORIES,
        sizes=Sizes(issues=2, pulls=1, commits=2),
        events=2,
        quirks=False,
    )
    limits = LimitSettings(
        quota=QUOTA, window_s=WINDOW_S, points_per_minute=1_000_000, cpu_s_per_minute=1_000_000, at_once=100
    )
    config = SimulatorConfig(world=shape, limits=limits, behaviour=Behaviour(latency_ms=LATENCY_MS))
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder, LosableValkey() as valkey:
        servers = Servers(valkey_url=valkey.url)
        async with open_site(fork_server, Path(folder), servers, config, settings={}, limits=LIMITS) as site:
            await site.working()
            run_ids = await site.begin(*site.logins)
            await site.until_over(run_ids, within_s=300)
            await site.stopped()
            return site.github.report()


def _figures(tokens: int, report: Report) -> list[Figure]:
    name = "one token" if tokens == 1 else f"pool of {tokens} tokens"
    filled = _while_work_waited(report.windows)
    used = sum(window.used for window in filled)
    share = 100 * used / (len(filled) * (QUOTA - FLOOR))
    gaps = _gaps(filled)
    return [
        Figure(
            f"{name}: used of what {len(filled)} windows allowed", f"{share:.1f} %", f"≥ {TARGET} %", share >= TARGET
        ),
        Figure(f"{name}: answers of 403 or 429 from limits", f"{report.refused}", "0", report.refused == 0),
        Figure(f"{name}: from a window's end to the next one's first call", _told(gaps)),
    ]


def _while_work_waited(windows: Sequence[WindowUse]) -> list[WindowUse]:
    """Those that were over before the work was."""
    last = max(window.opened for window in windows)
    return [window for window in windows if window.ends < last]


def _gaps(windows: Sequence[WindowUse]) -> list[float]:
    """How long each owner had a new window and did not use it, in ms."""
    by_owner: defaultdict[str, list[WindowUse]] = defaultdict(list)
    for window in sorted(windows, key=lambda each: each.opened):
        by_owner[window.owner].append(window)
    return [1000 * (after.opened - before.ends) for owned in by_owner.values() for before, after in pairwise(owned)]


def _told(gaps: Sequence[float]) -> str:
    ordered = sorted(gaps)
    return f"{ordered[len(ordered) // 2]:.0f} ms, at most {ordered[-1]:.0f} ms" if ordered else "there was none"
