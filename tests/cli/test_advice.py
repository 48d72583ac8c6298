"""What commands say to somebody who has set nothing up yet, or made a slip; and that nothing is cut off."""

import errno
import json
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.cli.batch import tidegate_each
from tests.cli.test_runs import begin, installation
from tests.cli.views import run
from tidegate.engine import runs
from tidegate.engine.commands.run_text import run_lines
from tidegate.engine.lifecycle import RunState
from tidegate.engine.tables import collection_runs
from tidegate.settings import Settings
from tidegate.storage.documents.export.exporter import ExportFailed
from tidegate.storage.sql import Transaction
from tidegate.systems.github.plugin import GithubPlugin


def half_fail(tx: Transaction, run_id: int) -> None:
    counters = {"total_jobs": 10, "succeeded_jobs": 3, "failed_jobs": 2, "canceled_jobs": 5}
    tx.execute(update(collection_runs).where(collection_runs.c.id == run_id).values(counters))


async def test_commands_report_what_is_missing_and_the_remedy(tmp_path: Path):
    (tmp_path / "file").touch()
    get, prefetch, history, dead, nothing, onto_a_file, narrowed, unowned, settings = await tidegate_each(
        tmp_path,
        "snapshots get character/7",
        "snapshots prefetch --json",
        "snapshots history character/7",
        "snapshots dead list",
        "export --format csv --output exported",
        "export --format csv --output file",
        "export --format csv --output exported --login octocat",
        "credentials add mine --no-check",
        "settings",
        COLUMNS="80",
    )

    for told in (get, prefetch, history, dead):
        assert (told.code, told.out) == (1, "")
        assert "TIDEGATE_SNAPSHOTS__GAME__URL and TIDEGATE_SNAPSHOTS__GAME__API_KEY" in told.err
        assert "tidegate simulate game" in told.err
        assert "TIDEGATE_SNAPSHOTS__KINDS" in told.err
    assert nothing.code == 0
    assert "Nothing to export: there are no documents in " in nothing.out
    assert "tidegate collect LOGIN" in nothing.out
    assert "matches --login and --kind" in narrowed.out
    assert onto_a_file.code == 1
    assert "It is not a folder. Give another folder with --output" in onto_a_file.err
    assert unowned.code == 1
    assert "--owner NAME" in unowned.err
    assert "None" not in unowned.err
    [limits] = [line for line in settings.out.splitlines() if line.startswith("limiter.limits ")]
    assert limits.rstrip().endswith("window = 1d}]"), "a pipe has no width"
    assert "None" not in settings.out


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_an_unwritable_folder_is_reported_with_advice(number: int):
    told = str(ExportFailed(Path("/mnt/there"), OSError(number, "no")))

    assert "folder" in told.partition("partial file was left. ")[2]


async def test_a_list_of_runs_counts_completed_jobs_and_reports_missing_workers(tmp_path: Path):
    async with installation(tmp_path) as database:
        canceled = await database.transaction(begin, "octocat")
        await database.transaction(half_fail, canceled)
        await database.transaction(runs.cancel, canceled)
        await database.transaction(begin, "hubot")

    listed, told, as_json = await tidegate_each(
        tmp_path, "runs list", "runs show 2", "runs list --json --state canceled"
    )

    rows = {line.split()[1]: line for line in listed.out.splitlines() if line[:1].isdigit()}
    assert " 3/10 " in rows["octocat"]
    assert "planning (no worker)" in rows["hubot"]
    assert "tidegate up" in listed.out
    assert "run        2 of hubot: planning (no worker)" in told.out
    assert json.loads(as_json.out)["has_workers"] is None, "nobody has to work on what is over"


def test_invalid_options_are_reported_in_terms_of_the_command_line():
    options = {"include": ["REPO_ISSUES", "USER_BASIC"], "full": True, "since": "2026-01-01"}
    asked = run(status=RunState.COMPLETED, options=options)

    [options] = [line for line in run_lines(asked, [], [], [], asked.created_at) if line.startswith("options")]

    assert options == "options    full, include profile, issues, since 2026-01-01"


def test_an_unknown_login_is_reported_without_a_retry_command():
    github = GithubPlugin(Settings())

    assert github.is_missing_subject("USER_BASIC", "user:nobody", "404: Not Found")
    assert not github.is_missing_subject("USER_BASIC", "user:octocat/repos", "404: Not Found")
    assert not github.is_missing_subject("USER_EVENTS", "user:octocat", "404: Not Found")
    assert not github.is_missing_subject("USER_BASIC", "user:octocat", "500: Server Error")
