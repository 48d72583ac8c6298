"""The load scenarios of `make scenarios`, in small: one is played, and the others are well formed."""

import asyncio

import pytest
from redis import Redis
from redis.cluster import RedisCluster
from scenarios.__main__ import ALL
from scenarios.cluster import asked, ours
from scenarios.deployment import open_site
from scenarios.every_script import use_everything
from scenarios.load import Load
from scenarios.machine import Cost
from scenarios.report import table
from scenarios.running import Options, perform
from scenarios.scenario import Check, Relation, Result, Scenario
from scenarios.stage import On, Stage

from tests.servers.valkey import empty_valkey

COST = Cost(cpu_s=1, others_share=0)
QUICK = Options(seconds=1, body_bytes=30_000, is_quiet=True)


def test_there_are_sixteen_scenarios():
    assert [each.number for each in ALL] == list(range(1, 17))


@pytest.mark.parametrize(
    ("figure", "relation", "passed"),
    [(1, "<", True), (2, "<", False), (2, "≤", True), (3, "≤", False), (2, "≥", True), (1, "≥", False), (2, "=", True)],
)
def test_a_figure_is_compared_with_its_target(figure: float, relation: Relation, passed: bool):
    assert Check("it", figure, relation, 2).passed is passed


def test_a_missed_target_fails_a_scenario_and_a_missing_server_does_not():
    right, wrong = Check("right", 1, "=", 1, "ms"), Check("wrong", 2, "=", 1)
    failed = Result(number=1, title="it", on=On.KAFKA, took_s=1, cost=COST, checks=[right, wrong])
    not_run = Result(number=2, title="other", on=On.KAFKA, took_s=0, cost=COST, missing="no Java")

    assert (failed.passed, not_run.passed) == (False, True)
    lines = table([failed, not_run]).splitlines()
    assert [line.split()[-1] for line in lines[1:4]] == ["FAIL", "pass", "FAIL"]
    assert lines[4].endswith("NOT RUN")
    assert lines[-1] == "1 played in 1 s, 1 failed"


async def test_a_scenario_is_run_by_real_processes():
    async def read_one(stage: Stage) -> list[Check]:
        async with open_site(stage) as site:
            load = Load(site)
            await load.until_fresh(7, asyncio.get_running_loop().time())
            await site.until_settled(within_s=10)
            calls, wrong = await site.game.calls_of(7), await site.wrong([7, 8])
            return [load.high.all_good("reads"), Check("calls", calls, "=", 1), Check("wrong", wrong, "=", 1)]

    [result] = await perform([(Scenario(0, "one reads", read_one), On.STREAMS)], QUICK)

    assert result.trouble is None
    assert result.passed, result.checks


async def test_an_error_in_a_scenario_is_reported_and_fails_it():
    async def stumble(_stage: Stage) -> list[Check]:
        raise ValueError("over a stone")

    [result] = await perform([(Scenario(0, "one stumbles", stumble), On.STREAMS)], QUICK)

    assert not result.passed
    assert result.trouble is not None
    assert result.trouble.startswith("ValueError: over a stone")


async def test_every_script_of_the_primitives_runs_on_a_cluster(cluster_url: str):
    """A node knows a script that it has run, and no other."""
    snapshots = {"put", "fail"}
    with RedisCluster.from_url(cluster_url.replace("+cluster", "")) as cluster:
        nodes = [Redis(host=str(node.host), port=int(node.port or 0)) for node in cluster.get_primaries()]
        for node in nodes:  # what other tests ran, and had fail on purpose, does not count
            node.script_flush()
            node.config_resetstat()
        async with empty_valkey(cluster_url) as valkey:
            for number in range(3):
                await use_everything(valkey, valkey.unit(f"everything-{number}"))
        ran, failed = asked(nodes, ours())

    assert {each.path.stem for each in ours() if not ran[each.sha]} <= snapshots
    assert failed == 0
