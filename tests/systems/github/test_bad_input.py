"""What cannot be collected says why in words, and everything else of the run and of the command goes on."""

from pathlib import Path

import pytest

from tests.systems.github.answers import API, answer, follow_up, message, task
from tests.systems.github.deployment import LARGE, Deployment, deployed
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.progress import failures_of, unavailable_of
from tidegate.engine.runs import Run
from tidegate.systems.github import ALL, GithubSource, kinds
from tidegate_simulators.github.repository import Repository


async def reasons(it: Deployment, run: Run) -> list[str]:
    return [failure.reason for failure in await it.parts.database.read(failures_of, [run.id])]


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("nobody-at-all", "404: Not Found: GitHub has no user 'nobody-at-all'; check the spelling"),
        ("org:nobody-at-all", "404: Not Found: GitHub has no organization 'nobody-at-all'; check the spelling"),
        (
            "nobody-at-all/hello",
            "404: Not Found: there is no repository 'nobody-at-all/hello', or the token has no access to it",
        ),
    ],
)
async def test_an_unknown_login_fails_alone_and_is_named(tmp_path: Path, embedded_url: str, written: str, why: str):
    async with deployed(tmp_path, embedded_url, users=2) as it:
        login = it.sim.world.logins()[0]
        unknown = await it.begin(written, pool=login)
        other = await it.begin(login)
        assert why in await reasons(it, await it.end_of(unknown, RunState.FAILED))
        assert (await it.end_of(other)).failed_jobs == 0


async def test_a_repository_without_access_is_distinguished_from_one_that_is_taken_down(
    tmp_path: Path, embedded_url: str
):
    async with deployed(tmp_path, embedded_url, repositories=2) as it:
        [login] = it.sim.world.logins()
        private, gone = (f"{login}/{name.partition('/')[2]}" for name in _names(it, login))
        it.sim.mutate.make_private(private)
        it.sim.mutate.take_down(gone)

        hidden = await it.end_of(await it.begin(private), RunState.FAILED)
        assert await reasons(it, hidden) == [
            f"404: Not Found: there is no repository '{private.lower()}', or the token has no access to it"
        ]
        blocked = await it.end_of(await it.begin(gone))
        [withheld] = await it.parts.database.read(unavailable_of, [blocked.id])
        assert withheld.reason.startswith("451: Repository access blocked")
        assert blocked.failed_jobs == 0


async def test_an_organization_with_single_sign_on_is_reported_with_the_authorization_url(
    tmp_path: Path, embedded_url: str
):
    async with deployed(tmp_path, embedded_url, users=2, organizations=1) as it:
        name, login = it.sim.world.logins()
        it.sim.mutate.require_sign_on(name)
        it.sim.credentials.restrict(it.sim.token_of(login), is_signed_on=False)
        refused = await it.begin(f"org:{name}", pool=login)
        other = await it.begin(login)

        told = await reasons(it, await it.end_of(refused, RunState.FAILED))
        where = f"the organization requires single sign-on: authorize the token at https://github.com/orgs/{name}/sso"
        assert all(each.startswith("403: Resource protected by") and each.endswith(where) for each in told)
        assert len(told) == 2, "the organization and its list; nothing is retried"
        assert (await it.end_of(other)).failed_jobs == 0


async def test_a_missing_scope_is_named_and_the_rest_is_collected(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, users=1, organizations=1, include=["teams", "members", "labels"]) as it:
        [name] = it.sim.world.logins()
        it.sim.credentials.restrict(it.sim.token_of(name), scopes={"repo"})
        run = await it.end_of(await it.begin(f"org:{name}"))

        [why] = await reasons(it, run)
        assert why.endswith(
            "the token may lack a scope: GitHub asks for admin:org or read:org or write:org, and it has repo"
        )
        assert await it.bodies("label")


@pytest.mark.parametrize(
    ("granted", "accepted", "told"),
    [
        ("", "repo", "the token may lack a scope: GitHub asks for repo, and it has none"),
        ("admin:org", "read:org", None),
        ("repo", "", None),
        (None, "repo", None),
    ],
)
def test_a_scope_is_missing_unless_a_granted_one_includes_it(granted: str | None, accepted: str, told: str | None):
    headers = {"x_accepted_oauth_scopes": accepted} | ({} if granted is None else {"x_oauth_scopes": granted})
    reading = GithubSource(API).read(task(kinds.REPO_ISSUES), message(403, "Must be an owner", **headers))
    assert reading.reason == "403: Must be an owner" + (f"; {told}" if told else "")


async def test_a_renamed_repository_is_collected_under_its_new_name(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, repositories=1) as it:
        [login] = it.sim.world.logins()
        [former] = _names(it, login)
        await it.collect(former)
        it.sim.mutate.rename(former, "new-name")
        [run] = await it.collect(former)

        assert (run.status, run.failed_jobs) == (RunState.COMPLETED, 0)
        assert [body["full_name"] for body in (await it.bodies("repository")).values()] == [f"{login}/new-name"]
        resources = {found.resource async for found in it.documents.iterate("commit")}
        assert resources == {f"repo:{login}/new-name"}


async def test_a_repository_that_is_renamed_while_it_is_read_is_complete_in_the_same_run(
    tmp_path: Path, embedded_url: str, monkeypatch: pytest.MonkeyPatch
):
    """Lists are requested by the number of the repository, which a new name does not change."""
    async with deployed(tmp_path, embedded_url, repositories=2, sizes=LARGE, include=ALL) as it:
        [login] = it.sim.world.logins()
        former, _ = _names(it, login)
        pages = list[str]()

        def rename_after_the_first_page(found: Repository) -> bool:
            if found.full_name == former:
                it.sim.mutate.rename(former, "new-name")
            pages.append(found.full_name)
            return True

        monkeypatch.setattr(it.sim.mutate, "after_read", rename_after_the_first_page)
        [run] = await it.collect(login)
        assert (run.failed_jobs, run.skipped_items) == (0, 0)
        assert pages.count(f"{login}/new-name") > 1, "further pages were read after it had another name"
        assert former not in _names(it, login)
        everything = it.sim.truth(login).repositories
        assert (await it.bodies("commit")).keys() == {
            f"{each.repository['id']}:{item['sha']}" for each in everything for item in each.commits
        }
        assert (await it.bodies("issue")).keys() == {str(item["id"]) for each in everything for item in each.issues}

        [run] = await it.collect(login)
        assert run.failed_jobs == 0
        resources = {found.resource async for found in it.documents.iterate("commit")}
        assert resources == {f"repo:{name}" for name in _names(it, login)}, "the next run stores the new name"


def test_pointers_of_git_lfs_are_files_like_any_other():
    """Only descriptions are read, never the contents of files, so it does not matter where these are stored."""
    source = GithubSource(API, ["commit-details"])
    parent = task(kinds.REPO_COMMITS, details=[kinds.REPO_COMMIT_DETAILS])
    [spec, *_] = source.read(parent, answer(200, [{"sha": "a", "parents": []}])).follow_ups
    pointer = "+version https://git-lfs.github.com/spec/v1\n+oid sha256:4d7a\n+size 12345"
    changed = {"sha": "a", "stats": {"additions": 3}, "files": [{"filename": "model.bin", "patch": pointer}]}
    reading = source.read(follow_up(parent, spec), answer(200, changed))
    assert ([each.id for each in reading.documents], list(reading.skipped)) == (["7:a"], [])


async def test_an_empty_repository_is_complete_and_a_recreated_one_is_refused(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, repositories=1) as it:
        [login] = it.sim.world.logins()
        [name] = _names(it, login)
        await it.collect(name)
        it.sim.mutate.recreate(name)

        refused = await it.end_of(await it.begin(name), RunState.FAILED)
        [why] = await reasons(it, refused)
        assert f"{name.lower()} is a different repository now" in why
        [run] = await it.collect(name, full=True)
        assert (run.status, run.failed_jobs) == (RunState.COMPLETED, 0)
        assert await it.bodies("commit") == {}


def _names(it: Deployment, login: str) -> list[str]:
    return [each.full_name for each in it.sim.world.repositories_of(it.sim.world.require_account(login))]
