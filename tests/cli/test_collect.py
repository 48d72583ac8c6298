"""`tidegate collect` against the simulator, in a process of its own."""

import asyncio
import json
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.cli.batch import tidegate_each
from tests.cli.terminal import CTRL_C, in_terminal
from tests.cli.test_commands import Ended, environment, tidegate
from tests.processes import start_warm
from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer
from tests.waiting import look_again, patience, until
from tidegate.systems.github.kinds import COLUMNS
from tidegate_simulators.github import (
    Behaviour,
    GithubSimulator,
    LimitSettings,
    SimulatorConfig,
    Sizes,
    WorldShape,
    parse_faults,
)

SMALL = WorldShape(users=2, repositories=3, quirks=False)
LONG = WorldShape(users=2, repositories=3, quirks=False, sizes=Sizes(issues=450, pulls=350, commits=450))
SHORT = WorldShape(users=2, repositories=1, quirks=False, sizes=Sizes(issues=450, commits=250))
"""Issues are seven calls for each user, commits three more: more than `RATIONED` has in a window."""
RATIONED = LimitSettings(quota=10, window_s=6)
"""So few that they are used up before the window ends on a slow machine too."""
CLOCK = r"\d\d:\d\d:\d\d"
WAIT = rf"(0 left|\d+ left, kept in reserve), opens {CLOCK}"


def simulator(world: WorldShape = SMALL, **changes: object) -> GithubSimulator:
    return GithubSimulator(SimulatorConfig(world=world, **changes))  # pyright: ignore[reportArgumentType]


def token_of(sim: GithubSimulator) -> str:
    return sim.token_of(sim.world.operators()[0])


async def collect(folder: Path, sim: GithubSimulator, *arguments: str, logins: Iterable[str] | None = None) -> Ended:
    named = sim.world.logins() if logins is None else logins
    return await tidegate(folder, "collect", *named, "--api-url", sim.url, *arguments, GITHUB_TOKEN=token_of(sim))


async def test_a_second_collection_of_unchanged_data_makes_no_calls(tmp_path: Path):
    async with simulator() as sim:
        first = await collect(tmp_path, sim, "--json")
        spent = sim.report().spent
        second = await collect(tmp_path, sim, "--json")

        assert (first.code, first.err, second.code, second.err) == (0, "", 0, "")
        one, two = json.loads(first.out), json.loads(second.out)
        assert [run["status"] for run in one["runs"]] == ["completed", "completed"]
        assert one["documents"] == {"organization": 0, **documents_of(sim)}
        assert one["calls"] == sum(run["calls"] for run in one["runs"]) > 20
        assert {user["mode"] for user in one["plan"]["users"]} == {"new"}

        assert sim.report().spent == spent
        assert two["unchanged_calls"] == two["calls"] == two["plan"]["calls"] == two["plan"]["free_calls"] > 0
        assert {user["mode"] for user in two["plan"]["users"]} == {"incremental"}
        assert token_of(sim) not in first.out + second.out


def documents_of(sim: GithubSimulator) -> dict[str, int]:
    truths = [sim.truth(login) for login in sim.world.logins()]
    repositories = [found for truth in truths for found in truth.repositories]
    return {
        "user": len(truths),
        "repository": len(repositories),
        "event": sum(len(truth.events) for truth in truths),
        "issue": sum(len(found.issues) for found in repositories),
        "pull_request": sum(len(found.pulls) for found in repositories),
        "commit": sum(len(found.commits) for found in repositories),
        **dict.fromkeys(COLUMNS.keys() - {"user", "repository", "event", "issue", "pull_request", "commit"}, 0),
    }


@pytest.mark.full
async def test_without_a_terminal_plan_progress_and_summary_are_plain_lines(tmp_path: Path):
    async with simulator(behaviour=Behaviour(latency_ms=20)) as sim:
        login = sim.world.logins()[0]
        (tmp_path / "logins.txt").write_text(f"# ours\nhttps://github.com/{login}\n\n@nobody-at-all  # gone\n")
        ended = await collect(tmp_path, sim, "--file", "logins.txt", "--kinds", "issues,events", logins=[])

    assert ended.code == 1, ended.err
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", ended.out + ended.err), "no control codes"
    lines = [
        rf"plan       {login}, nobody-at-all: new, 3 calls each at first; more are known .*",
        rf"permits    token of operator-1: [\d,]+ of 5,000 left, window ends ({CLOCK}|\w+ \d+ \d\d:\d\d)",
        rf"end        about {CLOCK}, in \d+ s: the permits left suffice",
        rf"{CLOCK}  \d of 2 users complete, \d+ of \d+ pages, .*",
    ]
    assert [line for line in lines if not re.search(f"^{line}$", ended.err, re.MULTILINE)] == []
    told = dict(re.findall(r"^(\w+) +(.*)$", ended.out, re.MULTILINE))
    assert re.fullmatch(r"1 of 2 users complete in \d+ s, 1 failed", told["users"])
    assert "nobody-at-all" in ended.out
    assert "2 x 404: Not Found: profile, events of" in told["failures"]
    assert "1 x 404: Not Found: GitHub has no user 'nobody-at-all'; check the spelling" in ended.out
    assert "issue" in told["documents"]
    assert "commit" not in told["documents"]
    assert told["data"] == f"{tmp_path}/data/tidegate.db (SQLite)"
    assert told["next"] == "nobody-at-all: not found upstream; check the spelling"
    assert "runs retry" not in ended.out


@pytest.mark.full
async def test_an_interrupted_collection_continues_with_the_same_command_without_repeated_calls(
    tmp_path: Path,
):
    async with simulator(LONG, behaviour=Behaviour(latency_ms=100)) as sim:
        command = (
            str(Path(sys.executable).with_name("tidegate")),
            *("collect", *sim.world.logins(), "--api-url", sim.url, "--json"),
        )
        process = await start_warm(
            *command, stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=environment(tmp_path, GITHUB_TOKEN=token_of(sim))
        )
        while sim.report().calls < 12:
            await look_again()
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        assert process.returncode == 130, err
        assert b"Stopping: calls in progress finish" in err
        stopped = json.loads(out)
        assert (stopped["complete"], stopped["interrupted"]) == (False, True)
        spent = sim.report().spent["core"]

        ended = await collect(tmp_path, sim, "--json")

        assert ended.code == 0, ended.err
        resumed = json.loads(ended.out)
        assert [run["id"] for run in resumed["runs"]] == [run["id"] for run in stopped["runs"]]
        assert {user["mode"] for user in resumed["plan"]["users"]} == {"resumed"}
        assert resumed["documents"] == documents_of(sim)
        report = sim.report(include=("profile", "repositories", "events", "issues", "pulls", "commits"))
        assert report.needed is not None
        # The call that asks whose token it is comes on top.
        assert spent < report.spent["core"] <= report.needed.core + 1
        assert report.broken == 0


@pytest.mark.full
async def test_waits_are_reported_with_reason_and_time(tmp_path: Path):
    async with simulator(SHORT, limits=RATIONED) as sim:
        ended = await collect(tmp_path, sim, "--kinds", "issues")

    assert ended.code == 0, ended.err
    assert re.search(rf"^{CLOCK}  .* token of operator-1: {WAIT}", ended.err, re.MULTILINE)
    assert re.search(r"^end .* do not suffice, waits", ended.err, re.MULTILINE)
    assert sim.report().broken == 0


@pytest.mark.full
async def test_a_refused_token_is_reported_before_the_collection_starts(tmp_path: Path):
    async with simulator() as sim:
        bad = "ghp_0123456789abcdefghij0123456789abcdef"
        ended = await tidegate(tmp_path, "collect", "octocat", "--api-url", sim.url, GITHUB_TOKEN=bad)

    assert (ended.code, ended.out) == (1, "")
    assert "GITHUB_TOKEN cannot be used" in ended.err
    assert "401" in ended.err
    assert len(ended.err.splitlines()) == 1
    assert bad not in ended.err


async def test_without_a_token_the_setting_to_set_is_named(tmp_path: Path):
    ended = await tidegate(tmp_path, "collect", "octocat", GITHUB_TOKEN="")

    assert ended.code == 1
    assert "GITHUB_TOKEN" in ended.err


@pytest.mark.full
async def test_several_processes_collect_the_same_users_together(tmp_path: Path):
    """One that only works and leads, and two that watch the same runs to their end: nothing is fetched twice."""
    async with simulator(LONG, behaviour=Behaviour(latency_ms=60)) as sim:
        surroundings = environment(tmp_path, GITHUB_TOKEN=token_of(sim), TIDEGATE_GITHUB__API_URL=sim.url)
        working = await start_warm(
            *(str(Path(sys.executable).with_name("tidegate")), "work", "--json"),
            stdout=PIPE,
            stderr=DEVNULL,
            cwd=tmp_path,
            env=surroundings,
        )
        assert working.stdout is not None
        assert await working.stdout.readline(), "it has begun to work"
        one, other = await asyncio.gather(collect(tmp_path, sim, "--json"), collect(tmp_path, sim, "--json"))
        working.terminate()
        await working.communicate()
        report = sim.report(include=("profile", "repositories", "events", "issues", "pulls", "commits"))

    assert (one.code, one.err, other.code, other.err) == (0, "", 0, "")
    first, second = json.loads(one.out), json.loads(other.out)
    assert [run["id"] for run in first["runs"]] == [run["id"] for run in second["runs"]]
    assert first["documents"] == second["documents"] == documents_of(sim)
    assert report.needed is not None
    assert report.spent["core"] <= report.needed.core + 3
    assert report.broken == 0


@pytest.mark.full
async def test_a_user_with_an_own_token_is_collected_with_it_alone(tmp_path: Path):
    async with simulator(SHORT, limits=LimitSettings(quota=5, window_s=6)) as sim:
        own, other = sim.world.logins()
        stored = await tidegate_each(
            tmp_path,
            f"credentials add --from-env OWN --user {own} --api-url {sim.url}",
            f"credentials add --from-env POOL --api-url {sim.url}",
            OWN=sim.token_of(own),
            POOL=token_of(sim),
        )
        assert [one.code for one in stored] == [0, 0], stored
        ended = await tidegate(tmp_path, "collect", own, other, "--kinds", "issues", "--api-url", sim.url)
        shown = await tidegate_each(tmp_path, "runs list --json")

    assert ended.code == 0, ended.err
    assert len({run["pool"] for run in json.loads(shown[0].out)["runs"]}) == 2
    assert re.search(rf"token of {own}: \d+ of 5 left, window ends", ended.err)
    assert re.search(r"token of operator-1: \d+ of 5 left, window ends", ended.err)
    assert re.search(rf"token of {own}: {WAIT}", ended.err)
    assert min(sim.report().by_token.values()) >= 7, "both tokens were used"
    assert sim.report().broken == 0


@pytest.mark.full
async def test_a_temporarily_unavailable_server_is_reported_and_waited_for(tmp_path: Path):
    (port,) = free_ports(1)
    with ValkeyServer(port=port):
        async with simulator(LONG, behaviour=Behaviour(latency_ms=60)) as sim, Proxy(port) as wire:
            told = tmp_path / "told.txt"
            with told.open("wb") as file:
                collecting = await start_warm(
                    *(str(Path(sys.executable).with_name("tidegate")), "collect", *sim.world.logins()),
                    *("--api-url", sim.url),
                    stdout=asyncio.subprocess.PIPE,
                    stderr=file,
                    cwd=tmp_path,
                    env=environment(
                        tmp_path, GITHUB_TOKEN=token_of(sim), TIDEGATE_VALKEY_URL=f"redis://127.0.0.1:{wire.port}"
                    ),
                )
            await until(lambda: sim.report().calls >= 10)
            await wire.refuse()
            await until(
                lambda: re.search(rf"^{CLOCK}  .*; not up to date: .*127.0.0.1", told.read_text(), re.MULTILINE)
            )
            await wire.listen()
            out, _ = await collecting.communicate()

    assert collecting.returncode == 0, told.read_text()
    assert "2 of 2 users complete" in out.decode()
    assert sim.report().broken == 0


@pytest.mark.full
async def test_a_terminal_shows_users_kinds_permits_and_waits(tmp_path: Path):
    async with simulator(SHORT, limits=RATIONED) as sim:
        arguments = ("collect", *sim.world.logins(), "--api-url", sim.url, "--kinds", "issues,commits")
        async with in_terminal(tmp_path, *arguments, GITHUB_TOKEN=token_of(sim)) as terminal:
            shown = await terminal.until("waits: token of operator-1:", *sim.world.logins(), "0 of 2 users complete")
            assert re.search(r"issues +\S+ +\d+/\d+", shown)
            assert re.search(r"commits +\S+ +\d+/\d+", shown)
            assert re.search(rf"token of operator-1: \d+ of 10 left, window ends {CLOCK}, \d+ in flight", shown)
            assert re.search(rf"waits: token of operator-1: {WAIT}", shown)
            code = await terminal.ended()

    assert code == 0
    assert "\x1b[1A" in terminal.raw, "it is drawn again in the same place"
    *_, end = terminal.raw.split("\x1b[2K")
    assert "users      2 of 2 users complete" in end, "the picture is gone, and the summary stays"
    assert "━" not in end


async def test_ctrl_c_once_stops_gracefully_and_twice_immediately(tmp_path: Path):
    """The calls hang for longer than a test may take: one Ctrl-C waits for them, the second does not."""
    async with simulator(behaviour=Behaviour(faults=parse_faults("timeout@user=1"), hang_s=100)) as sim:
        arguments = ("collect", *sim.world.logins(), "--api-url", sim.url)
        async with in_terminal(tmp_path, *arguments, GITHUB_TOKEN=token_of(sim)) as terminal:
            await terminal.until("1 in flight")
            terminal.press(CTRL_C)
            await terminal.until("Stopping: calls in progress finish")
            assert terminal.process.returncode is None
            terminal.press(CTRL_C)
            async with patience():
                code = await terminal.ended()

    assert code == 130
    assert "Stopping at once." in terminal.text
    assert "run the same command again to continue" in terminal.text
    assert "Traceback" not in terminal.text
    assert "[error" not in terminal.text


async def test_ctrl_c_before_the_start_is_reported(tmp_path: Path):
    async with simulator(behaviour=Behaviour(latency_ms=30_000)) as sim:
        arguments = ("collect", *sim.world.logins(), "--api-url", sim.url)
        async with in_terminal(tmp_path, *arguments, GITHUB_TOKEN=token_of(sim)) as terminal:
            while not sim.report().calls:
                await look_again()
            terminal.press(CTRL_C)
            async with patience():
                code = await terminal.ended()

    assert code == 130
    assert "Interrupted before the collection started. Run the same command again to continue." in terminal.text
    assert "Traceback" not in terminal.text
