"""14: everything on a cluster of three.

How it is known that a script ran: the product teaches a server a script by running it in full, and in no other way (it
never sends SCRIPT LOAD). So a node that knows a script's SHA has run it at least once. How many runs failed, the nodes
count themselves; that they did not know a script yet is no failure.
"""

import asyncio
import importlib
import pkgutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redis import Redis
from tests.servers.valkey import Cluster

import tidegate.primitives
import tidegate.systems.snapshots
from scenarios.deployment import Shape, Site, open_site
from scenarios.every_script import use_everything
from scenarios.load import Load
from scenarios.scenario import Check, Scenario
from scenarios.stage import On, Stage
from tidegate.core.priority import Priority
from tidegate.storage.valkey.scripts import Script, all_scripts

_NODES, _UNITS = 3, 12
"""Enough that each of three nodes has some."""
_REFUSED = range(1, 31)
"""Subjects for which the game answers 400."""


async def every_script(stage: Stage) -> list[Check]:
    """A deployment at work on the cluster, and every primitive used on each of its nodes."""
    async with open_site(stage, Shape(is_cluster=True)) as site:
        load = Load(site)
        stage.tell("a deployment at work on three nodes")
        for subject in _REFUSED:
            await site.game.fail(subject, "400")
        low, high = range(2_000, 2_100), range(5_000, 5_100)
        await site.ask(low, Priority.LOW)
        await site.ask(_REFUSED, Priority.HIGH)
        await load.until_all_fresh(high)
        await site.until_settled(within_s=60)
        stage.tell("every primitive, on every node")
        valkey = site.parts.valkey
        await asyncio.gather(*(use_everything(valkey, valkey.unit(f"everything-{n}")) for n in range(_UNITS)))
        return await _checks(site, [*low, *high])


async def _checks(site: Site, subjects: list[int]) -> list[Check]:
    cluster = site.on_servers.valkey
    assert isinstance(cluster, Cluster)
    scripts = ours()
    ran, failed = await asyncio.to_thread(asked, [node.client() for node in cluster.nodes], scripts)
    never = [_name(each) for each in scripts if not ran[each.sha]]
    partly = [_name(each) for each in scripts if 0 < ran[each.sha] < _NODES]
    return [
        Check(f"scripts, of {len(scripts)}, that ran nowhere" + _listed(never), len(never), "=", 0),
        Check("that ran on some nodes only" + _listed(partly), len(partly), "=", 0),
        Check("runs of scripts that failed", failed, "=", 0),
        Check(f"of {len(subjects)} subjects lost or wrong", await site.wrong(subjects), "=", 0),
        Check("dead letters", await site.snapshots.transport.dead_count(), "=", len(_REFUSED)),
    ]


def ours() -> list[Script[..., Any]]:
    """Every script of the primitives and of snapshots: they are known when their modules were imported."""
    for package in (tidegate.primitives, tidegate.systems.snapshots):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    folders = [Path(package.__path__[0]) for package in (tidegate.primitives, tidegate.systems.snapshots)]
    return [each for each in all_scripts() if any(each.path.is_relative_to(folder) for folder in folders)]


def asked(nodes: Sequence[Redis], scripts: Sequence[Script[..., Any]]) -> tuple[Counter[str], int]:
    """On how many nodes each script ran, by its SHA, and how many runs failed on all of them."""
    ran, failed = Counter[str](), 0
    for node in nodes:
        with node as client:
            known: Any = client.execute_command("SCRIPT", "EXISTS", *(each.sha for each in scripts))
            ran.update({each.sha: int(is_known) for each, is_known in zip(scripts, known, strict=True)})
            failed += _failed(client)
    return ran, failed


def _failed(client: Redis) -> int:
    commands: Any = client.info("commandstats")
    errors: Any = client.info("errorstats")
    runs = [commands[name] for name in ("cmdstat_eval", "cmdstat_evalsha") if name in commands]
    unknown = errors.get("errorstat_NOSCRIPT", {"count": 0})["count"]
    return sum(each["failed_calls"] for each in runs) - unknown


def _name(script: Script[..., Any]) -> str:
    return f"{script.path.parent.name}/{script.path.stem}"


def _listed(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


SCENARIOS = (Scenario(14, "a cluster of three nodes", every_script, on=(On.STREAMS,)),)
