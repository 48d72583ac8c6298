"""The workflows call what exists, on the versions of Python that the package names."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def jobs_of(workflow: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github" / "workflows" / workflow).read_text())["jobs"]


def commands_of(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job.get("steps", []) if "run" in step]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_only_targets_that_exist(path: Path):
    commands = [command for job in jobs_of(path.name).values() for command in commands_of(job)]
    called = {target for command in commands for target in re.findall(r"\bmake ([\w-]+)", command)}

    assert called
    assert called - TARGETS == set()


def test_the_checks_run_what_ci_runs_on_every_python_of_the_package():
    job = jobs_of("checks.yml")["checks"]
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]

    assert commands_of(job) == ["make services", "make check"]
    assert job["steps"][-1]["env"] == {"TIDEGATE_TEST_REQUIRE_ALL_SERVERS": "1"}
    assert job["strategy"]["matrix"]["python"] == [
        version for name in named for version in re.findall(r"^Programming Language :: Python :: (3\.\d+)$", name)
    ]


def test_only_the_publishing_job_may_request_an_identity_token():
    jobs = jobs_of("publish.yml")
    permitted = {name: job.get("permissions", {}) for name, job in jobs.items()}

    assert permitted == {"checks": {}, "build": {}, "publish": {"id-token": "write"}}
    assert sorted(jobs["publish"]["needs"]) == ["build", "checks"]
    assert jobs["publish"]["steps"][-1] == {"uses": "pypa/gh-action-pypi-publish@release/v1"}
    assert jobs["checks"] == {"uses": "./.github/workflows/checks.yml"}
