"""The tiers of the test suite: which tests run in which tier. Every rule is on this page.

- `quick` (`make test`): the embedded Valkey and SQLite everywhere; the tests of storage and primitives also on a
  cluster and on PostgreSQL. Nothing has to be installed. Few Hypothesis examples, always the same.
- `full` (`make test-all`, and `pytest` without the option): storage and primitives on every server, all crash, race
  and browser tests. The tests of systems run on the embedded Valkey and SQLite; those marked `every_server` run on
  every server.
- `matrix`: `full`, and each test of each system on each server. For the search for a defect of one server.
"""

from collections.abc import Iterable
from enum import IntEnum
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parent


class Tier(IntEnum):
    """A tier includes those before it."""

    QUICK = 1
    FULL = 2
    MATRIX = 3


_DEFAULT = {"embedded", "sqlite", "in_folder", "streams-embedded"}
_SECOND = {"cluster", "postgres"}
_OTHER = {"redis7", "mariadb", "mongo", "kafka", "in_s3", "streams-cluster", "streams-redis7"}
SERVER_VALUES = _DEFAULT | _SECOND | _OTHER
SERVER_ARGUMENTS = (
    *("valkey_url", "migrated_url", "database_url", "server", "server_name", "served", "backend"),
    *("shelf", "world", "bench", "storage"),
)
"""The parameters whose values name a server."""

STORAGE_AND_PRIMITIVES = ("primitives/*", "storage/*", "servers/*")
"""Their tests run on every server: each server keeps the same promises to them."""
CONFORMANCE = (*STORAGE_AND_PRIMITIVES, "systems/snapshots/transports/*", "systems/snapshots/archive/*")

FULL_PLACES = (
    *("engine/sqs/*", "browser/*", "faults/*", "scenarios/*", "whole/*"),
    *("http/test_fuzzing.py", "systems/snapshots/transports/test_kafka*.py"),
)
"""The quick tier runs only what is marked `smoke` in these files, and does not import files without such a test."""

FULL_MARKERS = {"full", "crash", "race"}
"""The quick tier leaves tests with one of these markers out, unless they are also marked `smoke`."""

MARKERS = (
    "crash: kills real processes",
    "race: many processes at once",
    "full: left out of the quick tier, because it takes long and a cheaper test guards the same rule",
    "smoke: runs in the quick tier although its place or its other markers say otherwise",
    "every_server: a test of a system that runs on every server in the full tier, not only on the default pair",
)


def add_option(parser: pytest.Parser) -> None:
    """Register `--tier`."""
    names = [tier.name.lower() for tier in Tier]
    parser.addoption("--tier", choices=names, default="full", help="which tests to run: see tests/tiers.py")


def tier_of_run(config: pytest.Config) -> Tier:
    """The tier that `--tier` names."""
    return Tier[str(config.getoption("--tier")).upper()]


def is_ignored(path: Path, tier: Tier) -> bool:
    """Whether this file is not even imported in this tier."""
    return tier is Tier.QUICK and path.is_file() and _is_in(path, FULL_PLACES) and "mark.smoke" not in path.read_text()


def split(
    items: Iterable[pytest.Item], tier: Tier, *, is_filtered: bool
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests that run in this tier, and the others.

    Raises `UsageError` if the full tier would leave out every parameter of a test: such a test would never run in CI.
    Where tests are filtered by `-k` or `-m`, the parameters in the tier may have been filtered out.
    """
    chosen, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        (chosen if _tier_of(item) <= tier else others).append(item)
    if tier is Tier.FULL and not is_filtered:
        never = {_function(item) for item in others} - {_function(item) for item in chosen}
        if never:
            raise pytest.UsageError(f"only in --tier=matrix, or mark as every_server: {', '.join(sorted(never))}")
    return chosen, others


def _tier_of(item: pytest.Item) -> Tier:
    """The first tier that runs this test."""
    markers = {marker.name for marker in item.iter_markers()}
    is_long = not markers.isdisjoint(FULL_MARKERS) or _is_in(item.path, FULL_PLACES)
    by_kind = Tier.FULL if is_long and "smoke" not in markers else Tier.QUICK
    return max(by_kind, _tier_of_servers(item, servers_of(item) - _DEFAULT, markers))


def _tier_of_servers(item: pytest.Item, others: set[str], markers: set[str]) -> Tier:
    """The first tier that runs this test on these servers, which are not the default ones."""
    if not others:
        return Tier.QUICK
    if _is_in(item.path, CONFORMANCE):
        return Tier.QUICK if others <= _SECOND and _is_in(item.path, STORAGE_AND_PRIMITIVES) else Tier.FULL
    return Tier.FULL if "every_server" in markers else Tier.MATRIX


def servers_of(item: pytest.Item) -> set[str]:
    """The servers that the parameters of a test name."""
    callspec: Any = getattr(item, "callspec", None)
    parameters: dict[str, object] = callspec.params if callspec else {}
    values = {parameters.get(name) for name in SERVER_ARGUMENTS}
    return {value for value in values if isinstance(value, str)} & SERVER_VALUES


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


@cache
def _is_in(path: Path, places: tuple[str, ...]) -> bool:
    return path.is_relative_to(_ROOT) and any(fnmatch(str(path.relative_to(_ROOT)), place) for place in places)
