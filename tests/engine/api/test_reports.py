"""The operator's questions over HTTP: the same answers as the commands give."""

from datetime import timedelta
from pathlib import Path

import msgspec

from tests.engine.busy_day import fill
from tests.http.unattended import unattended
from tests.servers.migrated import migrated_file
from tests.servers.valkey import Embedded, empty_valkey
from tidegate.connections import build_context
from tidegate.engine.api.quotas import waiting_report
from tidegate.engine.reports.kinds import failing_kinds, processing_times, retry_counts
from tidegate.engine.reports.states import jobs_by_state, runs_by_state, slow_jobs
from tidegate.primitives.gate import Job
from tidegate.settings import Settings
from tidegate.storage.sql import Database


async def test_every_question_has_its_own_route(tmp_path: Path):
    async with unattended(tmp_path) as server:
        client, database = server.client, server.database
        await database.transaction(fill)
        await server.collection.gate_of("crawl").enqueue([Job(job=f"j{n}", pool="crawl", run="7") for n in range(3)])
        since = database.clock.now() - timedelta(days=1)

        for path, report in {
            "runs": await database.read(runs_by_state),
            "runs?hours=24": await database.read(runs_by_state, since),
            "jobs": await database.read(jobs_by_state),
            "slow?longer_than=3600&limit=1": await database.read(slow_jobs, timedelta(hours=1), 1),
            "failing?limit=2": await database.read(failing_kinds, since, 2),
            "times": await database.read(processing_times, since),
            "retries?hours=24": await database.read(retry_counts, since),
        }.items():
            answer = await client.get(f"/v1/reports/{path}")
            assert answer.status == 200, answer
            assert _timeless(answer.json) == _timeless(msgspec.to_builtins(report)), path

        github, crawl = (await client.get("/v1/reports/waiting")).json["pools"]
        assert (github["waiting"], github["buckets"], github["waits"]) == (25, {}, [])
        assert (crawl["waiting"], crawl["buckets"]) == (4, {"core": 3})
        assert [wait["reason"] for wait in crawl["waits"]] == ["no_credential"]

        for wrong in ("failing?hours=0", "slow?longer_than=-1", "times?limit=501", "waiting?limit=x", "jobs?hours=1"):
            assert (await client.get(f"/v1/reports/{wrong}")).status == 422, wrong
        assert (await client.get("/v1/reports/everything")).status == 404


def _timeless(value: object) -> object:
    """Without what changes from one moment to the next."""
    if isinstance(value, dict):
        moving = ("since", "seconds")
        return {name: _timeless(each) for name, each in value.items() if name not in moving}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list):
        return [_timeless(each) for each in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value


async def test_without_the_gate_only_the_reasons_are_missing(tmp_path: Path):
    server = Embedded()
    async with (
        await Database.open(await migrated_file(tmp_path / "tidegate.db")) as database,
        empty_valkey(server.url) as valkey,
    ):
        await database.transaction(fill)
        gate = build_context(Settings(), valkey, database).gate
        assert [pool.waits for pool in (await waiting_report(database, gate)).pools] == [[], []]
        server.stop()

        told = await waiting_report(database, gate)

    assert [(pool.waiting, pool.buckets, pool.waits) for pool in told.pools] == [(25, None, None), (4, None, None)]
