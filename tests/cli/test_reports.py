"""`tidegate report`: its questions and their options; what it finds is tested with the functions behind it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.batch import tidegate_each
from tests.cli.test_runs import installation
from tests.engine.busy_day import fill
from tidegate.cli.wording import parse_since, parse_span
from tidegate.core.errors import InvalidArgument

NOW = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
AWAY = "redis://127.0.0.1:1"


@pytest.mark.full
async def test_every_question_has_its_options_and_all_have_a_brief_answer(tmp_path: Path):
    async with installation(tmp_path) as database:
        await database.transaction(fill)

    brief, lately, week, few, some, slow, long, waiting, words, nonsense, never = await tidegate_each(
        tmp_path,
        "report --json",
        "report runs --since 1d --json",
        "report failing --since 7d --json",
        "report failing --limit 1",
        "report times --most-jobs 10",
        "report slow --longer-than 1h --json",
        "report slow --longer-than 3h",
        "report waiting --json",
        "report waiting",
        "report failing --since yesterday",
        "report slow --longer-than 5",
        TIDEGATE_VALKEY_URL=AWAY,
    )

    answers = json.loads(brief.out)
    assert [*answers] == ["runs", "jobs", "failing", "slow", "waiting", "times", "retries"]
    assert [len(answers[name]["kinds"]) for name in ("failing", "times", "retries")] == [4, 5, 5]
    assert [one["runs"] for one in json.loads(lately.out)["states"]] == [1, 1, 2, 1, 1]
    assert json.loads(week.out)["kinds"][0] == {
        **{"source": "github", "kind": "REPO_ISSUES", "jobs": 10, "failed": 9, "share": 0.9, "runs": 1},
        **{"last_job": 9, "last_error": ""},
    }
    assert "detail" in few.out
    assert "commits" not in few.out
    assert "more were not evaluated (--most-jobs)" in some.out
    assert [job["login"] for job in json.loads(slow.out)["jobs"]] == ["hourly"]
    assert long.out == "0 of 4 running jobs have been running for longer than 3 h 00 min.\n"
    assert [(one["waiting"], one["waits"]) for one in json.loads(waiting.out)["pools"]] == [(25, None), (4, None)]
    assert "mona (core) blocked until" in words.out
    assert "Valkey is unavailable" in words.out
    assert (nonsense.code, never.code) == (1, 1)
    assert "since is 'yesterday'" in nonsense.err
    assert "longer-than is '5'" in never.err


def test_durations_and_times_are_accepted_in_common_notations():
    assert parse_span("x", "90s") == timedelta(seconds=90)
    assert parse_span("x", " 1.5H ") == timedelta(minutes=90)
    assert parse_since("7d", NOW) == NOW - timedelta(days=7)
    assert parse_since("2026-01-31", NOW) == datetime(2026, 1, 31, tzinfo=UTC)
    assert parse_since("2026-01-31T12:00+02:00", NOW) == datetime(2026, 1, 31, 10, tzinfo=UTC)


@pytest.mark.parametrize("written", ["", "5", "-1h", "h", "9999999d", "9" * 400 + "s", "1 week", "nan d"])
def test_an_invalid_duration_is_refused_by_name(written: str):
    with pytest.raises(InvalidArgument, match="longer-than"):
        parse_span("longer-than", written)
    with pytest.raises(InvalidArgument, match="since"):
        parse_since(written, NOW)
