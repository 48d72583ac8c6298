"""What a person sees while it goes on, drawn without a clock or a server."""

import io
import re
from datetime import timedelta

import pytest
from rich.console import Console

from tests.cli.views import NOW, kind, permits, run, view
from tidegate.core.telemetry.logs import LogSettings
from tidegate.engine.commands.permits import Forecast, Permits, wait_reasons
from tidegate.engine.commands.screens import LineOutput, ProgressView, SilentOutput, open_screen
from tidegate.engine.commands.watching import View
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.progress import ResourceProgress
from tidegate.systems.github.plugin import GithubPlugin

LATER = NOW + timedelta(seconds=130)


def drawn(picture: ProgressView, shown: View, height: int = 24, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height)
    with console.capture() as captured:
        console.print(picture.draw(shown, height))
    return captured.get().splitlines()


def test_totals_kinds_users_and_permits_are_shown():
    octocat = run(failed_jobs=1, unchanged_calls=2)
    lines = drawn(
        ProgressView(),
        view(
            octocat,
            run(2, "hubot", RunState.COMPLETED, succeeded_jobs=10),
            kinds={1: [kind(failed=1), kind(name="REPO_COMMITS", succeeded=0)], 2: [kind(2, succeeded=10)]},
            calls_per_s=12.4,
            end=Forecast(seconds=200, waits=1),
        ),
    )

    assert lines[0] == "1 of 2 users complete, 15 of 20 pages, 642 documents"
    assert lines[1] == "8 calls, 2 of them free, 12 a second, 1 job failed"
    assert re.fullmatch(r"ends about \S+, in 3 min 20 s, after 1 wait for permits", lines[2])
    assert [re.sub(r"[\s━╸╺]+", " ", line).strip() for line in lines if re.search(r"\d/\d", line)] == [
        "issues 15/20 1 failed",
        "commits 0/10",
        "octocat 5/10 321 1 failed, issues 5/10, commits 0/10",
        "hubot 10/10 321 completed",
    ]
    assert re.search(r"token of octocat: 4,000 of 5,000 left, window ends \S+, 7 in flight", lines[-1])


def test_repositories_are_counted_beside_the_subjects():
    shown = view(
        run(),
        run(2, "org:github"),
        resources={1: ResourceProgress(total=8, ended=5), 2: ResourceProgress(total=1_000, ended=0)},
        unit=GithubPlugin.unit,
    )
    lines = drawn(ProgressView(), shown)
    assert lines[0].startswith("0 of 2 subjects complete, 5 of 1,008 repositories, ")
    [head] = [line.split() for line in lines if line.startswith("subject")]
    assert head[:2] == ["subject", "repositories"]
    assert any(re.search(r"octocat.* 5/8 ", line) for line in lines)


def test_a_run_that_failed_is_not_counted_as_complete():
    lines = drawn(ProgressView(), view(run(status=RunState.FAILED, failed_jobs=1), run(2, "hubot", RunState.COMPLETED)))
    assert lines[0].startswith("1 of 2 users complete, 1 failed, ")


def test_a_thousand_users_fit_into_a_small_terminal_in_a_stable_order():
    picture = ProgressView()
    runs = [run(n, f"user-{n}", RunState.RUNNING, succeeded_jobs=n % 7) for n in range(1, 1_001)]
    first = drawn(picture, view(*runs))
    assert len(first) <= 24
    assert max(len(line) for line in first) <= 80
    assert first[0].startswith("0 of 1,000 users complete")
    named = [line.split()[0] for line in first if line.startswith("user-")]
    assert len(named) > 5
    assert f"… {1_000 - len(named)} more in progress or waiting, 0 ended" in first

    ended = {named[0], named[3]}
    moved = [
        run(n, f"user-{n}", RunState.COMPLETED if f"user-{n}" in ended else RunState.RUNNING) for n in range(1, 1_001)
    ]
    second = [line.split()[0] for line in drawn(picture, view(*moved)) if line.startswith("user-")]
    assert second[: len(named) - 2] == [name for name in named if name not in ended]
    assert len(second) == len(named)


@pytest.mark.parametrize("height", [8, 10, 15, 24, 50])
@pytest.mark.parametrize("users", [1, 5, 12, 40])
def test_the_view_uses_no_more_lines_than_needed(users: int, height: int):
    runs = [run(n, f"user-{n}") for n in range(1, users + 1)]
    assert len(drawn(ProgressView(), view(*runs), height)) <= max(height, 14)


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (permits(reason="exhausted", left=0, opens_at=LATER), r"token of octocat: 0 left, opens \d\d:02:10"),
        (permits(reason="exhausted", left=100, opens_at=LATER), r".*: 100 left, kept in reserve, opens \d\d:02:10"),
        (permits(reason="blocked", opens_at=LATER), r".*: blocked by the upstream, opens \d\d:02:10"),
        (permits(reason="minute", opens_at=LATER), r".*: limit of calls per minute reached, opens \S+"),
        (permits(reason="retired"), r"token of octocat: rejected by the upstream"),
        (
            permits(reason="exhausted", left=0, opens_at=LATER, bucket="graphql"),
            r"token of octocat \(graphql\): 0 left.*",
        ),
    ],
)
def test_a_wait_is_shown_with_its_user_reason_and_end(one: Permits, told: str):
    (why,) = wait_reasons([one], NOW)
    assert re.fullmatch(told, why)


@pytest.mark.parametrize("reason", [None, "concurrency", "probing"])
def test_a_wait_that_ends_with_a_running_call_is_not_shown(reason: str | None):
    assert wait_reasons([permits(reason=reason)], NOW) == []


def test_lines_are_printed_at_the_start_of_a_wait_and_not_at_every_refresh():
    out = io.StringIO()
    lines = LineOutput(Console(file=out))
    waiting = permits(reason="exhausted", left=0, opens_at=LATER)
    for shown in (
        view(run()),
        view(run(succeeded_jobs=5)),
        view(run(), permits=[waiting]),
        view(run(), permits=[waiting]),
    ):
        lines.show(shown)

    told = out.getvalue().splitlines()
    assert len(told) == 2
    assert "waits" not in told[0]
    assert re.search(r"; token of octocat: 0 left, opens \d\d:02:10$", told[1])


def test_an_unresponsive_server_is_reported_and_the_view_continues():
    shown = view(run(), error="127.0.0.1: no answer")
    assert "not up to date: 127.0.0.1: no answer" in drawn(ProgressView(), shown)


def test_quiet_output_has_only_urgent_lines():
    out = io.StringIO()
    with open_screen(Console(file=out), LogSettings(), quiet=True) as screen:
        assert isinstance(screen, SilentOutput)
        screen.show(view(run()))
        screen.say("Stopping")
    assert out.getvalue() == "Stopping\n"
