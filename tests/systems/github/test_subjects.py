"""What can be collected: how subjects are written, and what a run for each of them brings."""

from pathlib import Path
from typing import Any

import pytest

from tests.systems.github.answers import API, answer
from tests.systems.github.deployment import Deployment, deployed
from tidegate.core.errors import InvalidArgument
from tidegate.engine.lifecycle import RunState
from tidegate.engine.source import Reading, Subject, Task, Verdict
from tidegate.systems.github import GithubSource, kinds, parse_subject
from tidegate_simulators.github import Sizes, profiles


@pytest.mark.parametrize(
    ("written", "known_as"),
    [
        ("Octocat", "octocat"),
        ("@octocat", "octocat"),
        ("https://github.com/Octocat", "octocat"),
        ("Octocat/Hello-World", "repo:octocat/hello-world"),
        ("repo:octocat/.github", "repo:octocat/.github"),
        ("https://github.com/octocat/hello.git", "repo:octocat/hello"),
        ("github.com/octocat/hello/", "repo:octocat/hello"),
        ("org:GitHub", "org:github"),
        ("https://github.com/orgs/GitHub", "org:github"),
        ("topic:CRDT", "topic:crdt"),
        ("search:topic:crdt", "topic:crdt"),
        ("search:  language:rust   stars:>1000 ", "search:language:rust stars:>1000"),
    ],
)
def test_a_subject_has_one_id_in_any_notation(written: str, known_as: str):
    subject = parse_subject(written)
    assert subject.id == known_as
    assert parse_subject(subject.id) == subject, "what is stored is read as the same subject"


@pytest.mark.parametrize(
    "written",
    [
        *(
            "",
            "octo cat",
            "octocat/",
            "/hello",
            "octocat/hello/issues",
            "octocat/..",
            "org:",
            "org:a/b",
            "repo:octocat",
        ),
        *(
            "https://example.org/octocat",
            "https://github.com/a/b/c",
            "topic:two words",
            "search:",
            f"search:{'q' * 181}",
        ),
    ],
)
def test_an_invalid_subject_is_refused(written: str):
    with pytest.raises(InvalidArgument, match="subject"):
        parse_subject(written)


async def test_a_single_repository_is_collected_and_costs_nothing_if_unchanged(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, users=2, repositories=3) as it:
        login = it.sim.world.logins()[0]
        wanted, *_ = _names(it, login)
        [run] = await it.collect(wanted.upper())

        assert (run.user_id, run.failed_jobs) == (f"repo:{wanted.lower()}", 0)
        assert [body["full_name"] for body in (await it.bodies("repository")).values()] == [wanted]
        resources = {found.resource async for found in it.documents.iterate("commit")}
        assert resources == {f"repo:{wanted}"}
        [truth] = [one for one in it.sim.truth(login).repositories if one.repository["full_name"] == wanted]
        assert len(await it.bodies("issue", login)) == len(truth.issues) > 0, "under its owner"

        before = it.sim.report()
        await it.collect(wanted)
        assert it.spent(before)["core"] == 0


async def test_data_collected_for_a_repository_is_not_collected_again_for_its_owner(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, repositories=1) as it:
        [login] = it.sim.world.logins()
        await it.collect(*_names(it, login))
        before = it.sim.report()
        [run] = await it.collect(login)

        assert run.failed_jobs == 0
        assert it.spent(before)["core"] == 3, "profile, list of repositories, events; the repository is unchanged"


async def test_an_organization_has_its_repositories_and_filters_select_them(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, users=3, organizations=1, repositories=4) as it:
        login = it.sim.world.logins()[0]
        first, second, third, _ = _names(it, login)
        patterns = {"repos": [first, second.partition("/")[2], third], "exclude": [second]}
        [run] = await it.collect(f"org:{login}", **patterns)

        assert run.failed_jobs == 0
        assert len(await it.bodies("repository", login)) == 4, "all are listed"
        assert len(await it.bodies("organization", login)) == 1
        resources = {found.resource async for found in it.documents.iterate("commit")}
        assert resources == {f"repo:{first}", f"repo:{third}"}


@pytest.mark.parametrize("name", ["archived", "forks"])
@pytest.mark.parametrize("wanted", [True, False])
def test_archived_repositories_and_forks_are_selected_by_the_list(name: str, wanted: bool):
    field = {"archived": "archived", "forks": "fork"}[name]
    listed = [{"id": i, "full_name": f"octocat/r{i}", field: bool(i)} for i in (0, 1)]
    reading = _read_list(listed, "octocat", **{name: wanted})
    assert [spec.resource for spec in reading.follow_ups] == [f"repo:octocat/r{int(wanted)}"]


async def test_a_search_collects_repositories_of_many_owners(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, users=4, repositories=2) as it:
        everything = [r for login in it.sim.world.logins() for r in _repositories(it, login)]
        languages = {r["language"] for r in everything}
        language = min(name for name in languages if name)
        expected = {r["full_name"] for r in everything if r["language"] == language}
        before = it.sim.report()
        [run] = await it.collect(f"search:language:{language}")

        assert run.failed_jobs == 0
        assert {body["full_name"] for body in (await it.bodies("repository")).values()} == expected
        owners = {found.owner async for found in it.documents.iterate("commit")}
        assert owners == {name.partition("/")[0].lower() for name in expected}
        assert it.spent(before)["search"] == 1


def test_a_search_reports_results_that_it_does_not_return():
    found = {"total_count": 1500, "incomplete_results": True, "items": [{"id": 7, "full_name": "a/b"}, None]}
    reading = _read_search(found)
    assert [spec.resource for spec in reading.follow_ups] == ["repo:a/b"]
    assert len(reading.skipped) == 3
    assert "finds 1500 repositories; GitHub shows only the first 1000" in reading.skipped[-1]
    assert not reading.completed


async def test_a_repository_of_two_subjects_is_collected_once(tmp_path: Path, embedded_url: str):
    """A user, an organization of the same account and a repository of it, at the same time."""
    shape: dict[str, Any] = {"users": 2, "organizations": 1, "repositories": 3, "sizes": Sizes(issues=250)}
    async with deployed(tmp_path, embedded_url, **shape, include=["issues"]) as it:
        login = it.sim.world.logins()[0]
        alone = it.sim.perfect_calls([login], ["profile", "repositories", "issues"]).core
        before = it.sim.report()
        runs = await it.collect(login, f"org:{login}", _names(it, login)[0])

        assert [(run.status, run.failed_jobs) for run in runs] == [(RunState.COMPLETED, 0)] * 3
        own = 3  # the organization, its list of repositories, and the repository that was named
        assert (alone, it.spent(before)["core"]) == (1 + 1 + 3 * 3, alone + own)


def test_a_recreated_repository_is_not_confused_with_the_former_one():
    kept = GithubSource(API).read(_repository_task(), answer(200, {"id": 7, "full_name": "octocat/hello"})).cursor
    anew = answer(200, {"id": 9, "full_name": "octocat/hello"})

    refused = GithubSource(API).read(_repository_task(cursor=kept), anew)
    assert (refused.verdict, refused.documents) == (Verdict.GONE, ())
    assert refused.reason.startswith("octocat/hello is a different repository now: its number is 9, and was 7")
    accepted = GithubSource(API).read(_repository_task(cursor=kept, full=True), anew)
    assert [document.id for document in accepted.documents] == ["9"]


def _names(it: Deployment, login: str) -> list[str]:
    return [r["full_name"] for r in _repositories(it, login)]


def _repositories(it: Deployment, login: str) -> list[dict[str, Any]]:
    world = it.sim.world
    return [profiles.repository(each) for each in world.repositories_of(world.require_account(login))]


def _read_list(listed: list[dict[str, Any]], written: str, **options: Any) -> Reading:
    source = GithubSource(API)
    spec = source.first_jobs(parse_subject(written).with_options(options))[1]
    task = Task(spec=spec, run_id=5, user_id="octocat", credential="octocat")
    return source.read(task, answer(200, listed))


def _read_search(found: dict[str, Any]) -> Reading:
    source = GithubSource(API)
    [spec] = source.first_jobs(parse_subject("search:x").with_options({}))
    assert spec.bucket == "search"
    return source.read(Task(spec=spec, run_id=5, user_id="search:x", credential="c"), answer(200, found))


def _repository_task(**given: Any) -> Task:
    options = {"full": True} if given.pop("full", False) else {}
    [spec] = GithubSource(API).first_jobs(Subject(user_id="x", login="repo:octocat/hello", options=options))
    assert spec.kind == kinds.USER_BASIC
    return Task(spec=spec, run_id=5, user_id="octocat", credential="c", **given)
