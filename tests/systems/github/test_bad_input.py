"""What cannot be collected says why in words, and everything else of the run and of the command goes on."""

from pathlib import Path

import pytest

from tests.systems.github.answers import API, message, task
from tests.systems.github.deployment import Deployment, deployed
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.progress import failures_of, unavailable_of
from tidegate.engine.runs import Run
from tidegate.systems.github import GithubSource, kinds


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
