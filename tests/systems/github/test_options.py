"""What a run may ask for, and how its wishes reach every job of it."""

from typing import Any

import msgspec
import pytest

from tests.systems.github.answers import API, answer, follow_up, link, task
from tidegate.core.errors import InvalidArgument
from tidegate.engine.source import Reading, Subject, Task
from tidegate.systems.github import CONVERSATIONS, ESSENTIAL, GithubSource, kinds, parse_login, require_login

HELLO = {"id": 7, "full_name": "octocat/hello", "node_id": "R_7"}
PULL = {"id": 1, "number": 1, "updated_at": "2026-01-02T00:00:00Z"}


def octocat(**options: Any) -> Subject:
    return Subject(user_id="1", login="octocat", options=options)


def listing_of(source: GithubSource, subject: Subject) -> Task:
    """The list of repositories with which a run begins."""
    (spec,) = (job for job in source.first_jobs(subject) if job.resource.endswith("/repos"))
    return Task(spec=spec, run_id=5, user_id="1", credential="octocat")


def kinds_followed(reader: GithubSource, listing: Task) -> set[str]:
    """What is read of a repository, and after its pull requests."""
    first = reader.read(listing, answer(200, [HELLO])).follow_ups
    found = [*first, *(spec for job in first for spec in job.successors)]
    pulls = [reader.read(follow_up(listing, spec), answer(200, [PULL])) for spec in found if spec.kind == "REPO_PRS"]
    return {spec.kind for spec in found} | {spec.kind for reading in pulls for spec in reading.follow_ups}


@pytest.mark.parametrize("of_reader", [ESSENTIAL, CONVERSATIONS, frozenset({kinds.USER_BASIC})])
def test_a_worker_uses_the_options_of_the_run_and_not_its_own(of_reader: frozenset[str]):
    beginner, reader = GithubSource(API), GithubSource(API, of_reader)

    assert kinds_followed(reader, listing_of(beginner, octocat(include=["reviews"]))) == {"REPO_PRS", "REPO_REVIEWS"}
    assert kinds_followed(reader, listing_of(beginner, octocat(include=["pulls", "commits"]))) == {
        "REPO_PRS",
        "REPO_COMMITS",
    }
    assert kinds_followed(reader, listing_of(beginner, octocat(include=["profile"]))) == set()


def test_a_run_without_options_gets_those_of_the_process_that_started_it():
    listing = listing_of(GithubSource(API, ["commits"]), octocat())
    assert kinds_followed(GithubSource(API, CONVERSATIONS), listing) == {"REPO_COMMITS"}


def test_a_job_without_options_gets_those_of_its_worker():
    assert kinds_followed(GithubSource(API, ["issues"]), _repositories()) == {"REPO_ISSUES"}
    pulls = GithubSource(API, ["reviews"]).read(task(kinds.REPO_PRS), answer(200, [PULL]))
    assert [spec.kind for spec in pulls.follow_ups] == ["REPO_REVIEWS"]


def test_the_options_survive_a_list_that_has_to_be_read_again():
    """One repository left the first page, the second is as it was: all have to be seen, by jobs that know no less."""
    source = GithubSource(API)
    one, two, three = ({**HELLO, "id": number, "full_name": f"octocat/{number}"} for number in (1, 2, 3))
    following = link("/user/1/repos?page=2")
    first = listing_of(source, octocat(include=["commits"]))
    second = next_page(first, source.read(first, answer(200, [one, two], {"ETag": '"1"', **following})))
    cursor = source.read(second, answer(200, [three], {"ETag": '"2"'})).cursor

    first = msgspec.structs.replace(first, cursor=cursor)
    second = next_page(first, source.read(first, answer(200, [two], {"ETag": '"3"', **following})))
    again = next_page(second, source.read(second, answer(304)))

    assert again.spec.page == "again page 1"
    assert kinds_followed(source, again) == {"REPO_COMMITS"}


def next_page(before: Task, reading: Reading) -> Task:
    (spec,) = (spec for spec in reading.follow_ups if spec.kind == "USER_BASIC")
    return follow_up(before, spec)


def test_events_are_read_only_by_runs_that_want_them():
    assert "USER_EVENTS" in {job.kind for job in GithubSource(API, ["profile"]).first_jobs(octocat(include=["all"]))}
    assert "USER_EVENTS" not in {
        job.kind for job in GithubSource(API, CONVERSATIONS).first_jobs(octocat(include=["issues"]))
    }


@pytest.mark.parametrize(
    "names", [["essential"], ["ESSENTIAL"], sorted(ESSENTIAL), ["events", "issues", "pulls", "commits"]]
)
def test_kinds_have_several_names(names: list[str]):
    assert kinds.require_kinds(names) == ESSENTIAL
    assert kinds.require_kinds(["conversations", *names]) == CONVERSATIONS < kinds.require_kinds(["all"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"include": ["stars"]}, "include is 'stars': must be among essential, conversations, all, profile, events"),
        ({"include": "issues"}, "include is 'issues': must be a list of names"),
        ({"include": []}, "include is .*: must be a list of names"),
        ({"include": [None]}, "include is 'None': must be among"),
        (
            {"inclued": ["issues"]},
            "options is 'inclued': must be among archived, exclude, forks",
        ),
    ],
)
def test_impossible_options_are_refused_when_the_run_is_started(options: dict[str, Any], told: str):
    with pytest.raises(InvalidArgument, match=told):
        GithubSource(API).first_jobs(octocat(**options))


@pytest.mark.parametrize(
    "written",
    [
        "octocat",
        "Octocat",
        "@octocat",
        " octocat\n",
        "https://github.com/octocat",
        "https://github.com/Octocat/?tab=repositories",
        "github.com/octocat",
        "http://www.GitHub.com/octocat#top",
    ],
)
def test_a_login_is_accepted_as_url_or_with_an_at_sign(written: str):
    assert parse_login(written) == "octocat"


@pytest.mark.parametrize("login", ["a", "a" * 39, "old-", "old--one", "mona_corp", "0x0"])
def test_every_valid_login_is_accepted(login: str):
    assert require_login(login) == login


@pytest.mark.parametrize(
    "written",
    [
        *("", "@", "-octocat", "octo cat", "octo.cat", "a" * 40, "octocat/hello", "https://github.com/octocat/hello"),
        *("https://github.com/", "ftp://github.com/octocat", "/octocat", "octo|cat", "\u212anight", "@@octocat", "_a"),
        *("https://gitlab.com/octocat", "gitlab.com/octocat", "https://github.com.example/octocat", "a.b/octocat"),
    ],
)
def test_an_invalid_login_is_refused_before_any_request(written: str):
    with pytest.raises(InvalidArgument, match=r"login is .*: must be a GitHub login"):
        parse_login(written)


def test_a_run_stores_the_plain_login():
    with pytest.raises(InvalidArgument, match="login is '@octocat'"):
        GithubSource(API).first_jobs(Subject(user_id="1", login="@octocat"))


def _repositories() -> Task:
    listing = task(kinds.USER_BASIC)
    spec = listing_of(GithubSource(API), octocat()).spec
    bare = {name: value for name, value in spec.params.items() if name != "include"}
    return follow_up(listing, type(spec)(kind=spec.kind, resource=spec.resource, params=bare))
