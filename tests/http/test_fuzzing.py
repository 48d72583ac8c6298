"""Requests made up from the OpenAPI document, good ones and bad ones, against a server that somebody started."""

import asyncio
import sys
from pathlib import Path

from tests.http.processes import started
from tidegate.simulators.github import GithubSimulator, SimulatorConfig, WorldShape

KEY = "a-key-for-the-fuzzer-0123456789"
CONFIG = """
[[operations]]
include-path-regex = "^/v1/credentials"
# Whether a secret is good is decided by GitHub, and no schema knows. Asked too often, it answers nobody for a while.
checks.positive_data_acceptance.enabled = false
checks.not_a_server_error.enabled = false

[[operations]]
include-path-regex = "^/v1/schedules"
# Which days a cron expression names, and which time zones a machine knows, no schema can tell.
checks.positive_data_acceptance.enabled = false
"""


async def test_the_server_does_what_its_document_says(tmp_path: Path):
    """Statuses, content types and schemas of all answers; bad data refused, good data taken; the key needed."""
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    async with GithubSimulator(SimulatorConfig(world=WorldShape(users=1, repositories=1, quirks=False))) as sim:
        variables = {
            "GITHUB_TOKEN": sim.token_of(sim.world.operators()[0]),
            "TIDEGATE_GITHUB__API_URL": sim.url,
            "TIDEGATE_HTTP__API_KEY": KEY,
        }
        async with started(tmp_path, "serve", "--port", "0", **variables) as server:
            fuzzer = await asyncio.create_subprocess_exec(
                str(Path(sys.executable).with_name("schemathesis")),
                *("run", f"{server.url}/openapi.json", "--header", f"Authorization: Bearer {KEY}"),
                *("--phases", "coverage,fuzzing", "--max-examples", "4", "--workers", "1"),
                *("--exclude-path", "/v1/runs/{run_id}/events"),  # which lasts as long as its run
                *("--seed", "20260131", "--generation-deterministic", "--request-timeout", "10", "--no-color"),
                cwd=tmp_path,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                told, _ = await asyncio.wait_for(fuzzer.communicate(), 90)
            finally:
                if fuzzer.returncode is None:
                    fuzzer.kill()
                    await fuzzer.wait()
            assert fuzzer.returncode == 0, told.decode()
            assert (await server.stop())["in_good_order"]
