"""Changes that webhooks report: the documents are those of a collection, and the next run costs no more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.systems.github.deployment import assert_complete, assert_talk_is_complete
from tests.systems.github.webhooks.deployment import WebhookDeployment, webhook_deployment
from tidegate.systems.github import CONVERSATIONS
from tidegate_simulators.github import Behaviour
from tidegate_simulators.github.mutations import Mutations

RESTLESS_HOOKS = Behaviour(error_pause_s=0, hang_s=0, drip_s=0, webhook_repeats=0.5, webhook_disorder=0.5)


def change_everything(mutate: Mutations, name: str) -> None:
    """Changes of every kind in one repository, some of one item several times."""
    issue = mutate.open_issue(name)
    pull = mutate.open_pull(name)
    for number in (issue, pull):
        mutate.edit(name, number)
        mutate.comment(name, number)
    mutate.edit_comment(name, mutate.comment(name, issue))
    mutate.delete_comment(name, mutate.comment(name, issue))
    mutate.review(name, pull)
    mutate.review_comment(name, pull)
    mutate.merge(name, pull)
    mutate.close(name, issue)
    mutate.reopen(name, issue)
    mutate.delete_issue(name, mutate.open_issue(name))
    mutate.push(name, 3)


async def test_webhooks_store_the_same_documents_as_a_collection(tmp_path: Path, embedded_url: str):
    async with webhook_deployment(tmp_path, embedded_url, include=CONVERSATIONS) as it:
        await it.deployment.collect(it.login)
        before = it.sim.report()
        change_everything(it.sim.mutate, it.repository.full_name)
        await it.applied()

        assert set(it.statuses()) == {202}
        assert it.deployment.spent(before)["core"] == 0, "no request was sent"
        await _assert_current(it)
        await assert_talk_is_complete(it.deployment, it.login)

        await it.deployment.collect(it.login)
        await assert_complete(it.deployment, it.login)
        await assert_talk_is_complete(it.deployment, it.login)


async def _assert_current(it: WebhookDeployment) -> None:
    """Issues and pull requests as they are now, and the shas of all commits."""
    [found] = it.sim.truth(it.login).repositories
    deployment = it.deployment
    assert await deployment.bodies("pull_request", it.login) == {str(each["id"]): each for each in found.pulls}
    issues = await deployment.bodies("issue", it.login)
    wanted = {str(each["id"]): each for each in found.issues}
    reported = {id_: body for id_, body in wanted.items() if "pull_request" not in body}
    assert {id_: issues[id_] for id_ in reported} == reported
    commits = {f"{found.repository['id']}:{each['sha']}" for each in found.commits}
    assert (await deployment.bodies("commit", it.login)).keys() == commits


@pytest.mark.parametrize("has_hooks", [True, False])
async def test_a_run_after_webhooks_costs_as_much_as_without_them(
    tmp_path: Path, embedded_url: str, *, has_hooks: bool
):
    async with webhook_deployment(tmp_path, embedded_url, registers=has_hooks, include=CONVERSATIONS) as it:
        costs = list[dict[str, int]]()
        await it.deployment.collect(it.login)
        for change in (lambda: change_everything(it.sim.mutate, it.repository.full_name), lambda: None):
            change()
            await it.applied()
            before = it.sim.report()
            await it.deployment.collect(it.login)
            costs.append(it.deployment.spent(before))
        after, unchanged = costs
        assert (after["core"], after["graphql"]) == (6, 1), "the same with webhooks and without"
        assert set(unchanged.values()) == {0}


async def test_repeated_and_reordered_deliveries_end_in_the_state_of_the_upstream(tmp_path: Path, embedded_url: str):
    async with webhook_deployment(tmp_path, embedded_url, include=CONVERSATIONS, behaviour=RESTLESS_HOOKS) as it:
        await it.deployment.collect(it.login)
        for _ in range(3):
            change_everything(it.sim.mutate, it.repository.full_name)
        await it.applied()
        attempts = [len(each.attempts) for each in it.sim.webhooks.deliveries]
        assert max(attempts) == 2, "some were sent twice"

        comments = await it.deployment.bodies("issue_comment", it.login)
        [found] = it.sim.truth(it.login).repositories
        assert comments.keys() == {str(each["id"]) for each in found.issue_comments}, "deleted comments stay deleted"
        issues = await it.deployment.bodies("issue", it.login)
        wanted = {str(each["id"]) for each in found.issues if "pull_request" not in each}
        assert {id_ for id_, body in issues.items() if "pull_request" not in body} == wanted

        await it.deployment.collect(it.login)
        await assert_complete(it.deployment, it.login)
        await assert_talk_is_complete(it.deployment, it.login)


@pytest.mark.parametrize("name", ["releases", "labels", "milestones", "forks", "stargazers"])
async def test_lists_are_updated_by_their_webhooks(tmp_path: Path, embedded_url: str, name: str):
    async with webhook_deployment(tmp_path, embedded_url, include=[name], extras=8) as it:
        await it.deployment.collect(it.login)
        extras, found = it.sim.extras, it.repository
        extras.add(found, name)
        if name != "forks":  # GitHub does not report that one was deleted
            extras.remove(found, name, 2)
        if name not in ("forks", "stargazers"):
            extras.change(found, name, 3)
        await it.applied()
        kind = name.removesuffix("s")
        reported = await it.deployment.bodies(kind)
        assert sorted(map(str, reported.values())) == sorted(map(str, extras.listed(found, name)))

        await it.deployment.collect(it.login)
        assert await it.deployment.bodies(kind) == reported, "the next run finds the same"


CHANGES: list[tuple[str, Callable[[Mutations, str, str], Any]]] = [
    ("rename", lambda mutate, name, _: mutate.rename(name, "another-name")),
    ("make private", lambda mutate, name, _: mutate.make_private(name)),
    ("transfer", lambda mutate, name, other: mutate.transfer(name, other)),
]


@pytest.mark.parametrize(("what", "change"), CHANGES, ids=[what for what, _ in CHANGES])
async def test_a_repository_is_updated_by_its_webhooks(
    tmp_path: Path, embedded_url: str, what: str, change: Callable[[Mutations, str, str], Any]
):
    async with webhook_deployment(tmp_path, embedded_url, users=2) as it:
        first, second = it.sim.world.logins()
        found = it.repository
        await it.deployment.collect(first, second)
        change(it.sim.mutate, found.full_name, second)
        await it.applied()
        stored = await it.deployment.documents.get("repository", str(found.id))
        assert stored is not None
        assert (stored.body["full_name"], stored.body["private"]) == (found.full_name, what == "make private")
        assert stored.owner == found.owner.login.lower()


async def test_documents_of_a_deleted_repository_are_gone_too(tmp_path: Path, embedded_url: str):
    async with webhook_deployment(tmp_path, embedded_url, users=1, repositories=2) as it:
        await it.deployment.collect(it.login)
        gone = it.repository
        it.sim.mutate.delete(gone.full_name)
        await it.applied()
        stored = await it.deployment.documents.get("repository", str(gone.id))
        assert stored is not None
        assert stored.gone_at is not None
        [left] = it.sim.truth(it.login).repositories
        for kind, listed in (("issue", left.issues), ("pull_request", left.pulls)):
            assert await it.deployment.bodies(kind, it.login) == {str(each["id"]): each for each in listed}
        assert len(await it.deployment.bodies("commit", it.login)) == len(left.commits)


async def test_a_transferred_issue_is_gone_here_and_stored_there(tmp_path: Path, embedded_url: str):
    async with webhook_deployment(tmp_path, embedded_url, users=1, repositories=2) as it:
        await it.deployment.collect(it.login)
        source, target = it.sim.world.repositories_of(it.sim.world.require_account(it.login))
        number = it.sim.mutate.open_issue(source.full_name)
        await it.applied()
        it.sim.mutate.transfer_issue(source.full_name, number, target.full_name)
        await it.applied()
        truth = it.sim.truth(it.login).repositories
        wanted = {str(each["id"]) for one in truth for each in one.issues}
        assert (await it.deployment.bodies("issue", it.login)).keys() == wanted


async def test_a_run_that_read_a_list_before_its_change_does_not_undo_the_change(tmp_path: Path, embedded_url: str):
    """The run is held up by a slow server after it has begun; meanwhile a comment is deleted and another is made."""
    slow = Behaviour(error_pause_s=0, hang_s=0, drip_s=0, latency_ms=150)
    async with webhook_deployment(tmp_path, embedded_url, include=CONVERSATIONS, behaviour=slow) as it:
        await it.deployment.collect(it.login)
        name, mutate = it.repository.full_name, it.sim.mutate
        [first, *_] = it.repository.comments.ordinals()
        number = it.repository.threads.numbers()[0]
        run = await it.deployment.begin(it.login, full=True)
        mutate.delete_comment(name, first)
        made = mutate.comment(name, number)
        await it.applied()
        await it.deployment.end_of(run)
        await assert_talk_is_complete(it.deployment, it.login)
        assert made in it.repository.comments.ordinals()
