"""A world that changes between runs, and while it is read."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.systems.github.deployment import (
    CALM,
    LARGE,
    SMALL,
    Deployment,
    assert_complete,
    assert_talk_is_complete,
    deployed,
)
from tests.waiting import look_again
from tidegate.systems.github import CONVERSATIONS, kinds
from tidegate_simulators.github import FaultKind, Sizes


def first_repository(it: Deployment) -> str:
    (login,) = it.sim.world.logins()
    return it.sim.world.repositories_of(it.sim.world.require_account(login))[0].full_name


@pytest.mark.full
async def test_changes_are_found_with_one_call_per_changed_list(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=LARGE, include=CONVERSATIONS) as it:
        (login,), name, change = it.sim.world.logins(), first_repository(it), it.sim.mutate
        await it.collect(login)
        before = it.sim.report()
        number = change.open_pull(name)
        change.review(name, number)
        change.comment(name, change.open_issue(name))
        change.edit(name, 1)
        change.push(name, 3)
        await it.collect(login)

        await assert_complete(it, login)
        await assert_talk_is_complete(it, login)
        # repositories, issues, comments, pulls and commits changed; the profile and the review comments did not.
        assert it.spent(before) == {"core": 5, "graphql": 1}


@pytest.mark.full
async def test_old_commits_that_are_merged_later_are_found(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=Sizes(commits=450)) as it:
        (login,), name = it.sim.world.logins(), first_repository(it)
        await it.collect(login)
        commits = it.sim.truth(login).repositories[0].commits
        of_third_page = datetime.fromisoformat(commits[250]["commit"]["committer"]["date"])
        it.sim.mutate.push_late(name, count=3, days=(datetime.now(UTC) - of_third_page) / timedelta(days=1))
        before = it.sim.report()
        await it.collect(login)

        await assert_complete(it, login)
        assert it.sim.report().by_route["repo.commits"] - before.by_route["repo.commits"] == 3


async def test_a_deleted_issue_of_a_short_list_is_gone_after_the_next_run(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=SMALL) as it:
        (login,), name = it.sim.world.logins(), first_repository(it)
        await it.collect(login)
        it.sim.mutate.delete_issue(name, 2)
        await it.collect(login)

        await assert_complete(it, login)
        assert await it.documents.count("issue", with_gone=True) == await it.documents.count("issue") + 1


@pytest.mark.full
async def test_a_deleted_issue_of_a_long_list_is_gone_after_a_full_run(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=Sizes(issues=320)) as it:
        (login,), name = it.sim.world.logins(), first_repository(it)
        await it.collect(login)
        it.sim.mutate.delete_issue(name, 2)
        await it.collect(login, full=True)

        await assert_complete(it, login)
        assert await it.documents.count("issue", with_gone=True) == 320


async def test_no_item_is_lost_while_items_are_inserted_and_moved_during_paging(tmp_path: Path, embedded_url: str):
    behaviour = msgspec.structs.replace(CALM, restless=0.6)
    sizes = Sizes(issues=600, pulls=350, commits=500, issue_comments=200)
    async with deployed(tmp_path, embedded_url, sizes=sizes, behaviour=behaviour) as it:
        (login,) = it.sim.world.logins()
        await it.collect(login)
        assert it.sim.report().mutations > 5
        numbers = {f"issue {body['number']}" for body in (await it.bodies("issue")).values()}
        assert numbers >= {f"issue {number}" for number in range(1, 951)}
        assert await it.documents.count("issue") == await it.documents.count("issue", with_gone=True)
        assert await it.documents.count("pull_request") >= 350
        assert await it.documents.count("commit") >= 500


@pytest.mark.full
async def test_a_comment_deleted_during_paging_hides_no_other(tmp_path: Path, embedded_url: str):
    """It moves the others up by one: the one that was to come first on the next page is on the last one by then."""
    include = ["issue-comments", "review-comments"]
    sizes = Sizes(issues=5, pulls=5, issue_comments=250, review_comments=220)
    async with deployed(tmp_path, embedded_url, sizes=sizes, include=include) as it:
        (login,), name = it.sim.world.logins(), first_repository(it)
        await it.collect(login)
        await assert_comments(it, login)
        for part in ("page=3", "since="):  # whichever way the third page is asked for, it comes late
            it.sim.faults.inject(FaultKind.BAD_GATEWAY, route="repo.issue_comments", contains=part)
        collecting = asyncio.create_task(it.collect(login, full=True))
        while it.sim.report().by_status.get("502", 0) == 0:
            await look_again()
        said = it.sim.world.require_repository(name).comments
        before = it.sim.truth(login).repositories[0].issue_comments
        in_order = sorted(said.ordinals(), key=lambda ordinal: -said.updated[ordinal])
        it.sim.mutate.delete_comment(name, in_order[150])
        await collecting

        left = {each["id"] for each in it.sim.truth(login).repositories[0].issue_comments}
        await assert_comments(it, login, seen={str(each["id"]) for each in before if each["id"] not in left})
        await it.collect(login, full=True)
        await assert_comments(it, login)


async def assert_comments(it: Deployment, login: str, seen: set[str] | None = None) -> None:
    """Those that are there, and perhaps some that were seen before they were deleted."""
    found = it.sim.truth(login).repositories[0]
    for kind, truly in (("issue_comment", found.issue_comments), ("review_comment", found.review_comments)):
        numbers = {str(each["id"]) for each in truly}
        assert (await it.bodies(kind)).keys() - (seen or set()) == numbers - (seen or set()), kind


async def test_a_renamed_repository_keeps_its_documents_under_the_new_name(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=SMALL) as it:
        (login,), name = it.sim.world.logins(), first_repository(it)
        await it.collect(login)
        it.sim.mutate.rename(name, "somewhere-else")
        await it.collect(login)

        await assert_complete(it, login)
        assert {found.resource async for found in it.documents.iterate("issue")} == {f"repo:{login}/somewhere-else"}
        assert await it.documents.count("commit", with_gone=True) == SMALL.commits


async def test_a_repository_renamed_during_a_run_is_complete_in_this_run_and_the_next(
    tmp_path: Path, embedded_url: str
):
    """Lists are requested by number. What this run wrote under the former name is under the new one after the next."""
    include = CONVERSATIONS | {kinds.REPO_BRANCHES, kinds.REPO_BRANCH_COMMITS}
    async with deployed(tmp_path, embedded_url, sizes=LARGE, include=include) as it:
        (login,), name = it.sim.world.logins(), first_repository(it)
        it.sim.faults.inject(FaultKind.BAD_GATEWAY, contains="after=", times=1)
        collecting = asyncio.create_task(it.collect(login))
        while it.sim.report().by_status.get("502", 0) < 1:  # the second page of issues
            await look_again()
        it.sim.mutate.rename(name, "somewhere-else")
        (run,) = await collecting
        assert (run.failed_jobs, run.skipped_items) == (0, 0)
        await it.collect(login)

        await assert_complete(it, login)
        for kind in ("issue", "commit", "branch_commit", "review"):
            resources = {found.resource async for found in it.documents.iterate(kind)}
            assert resources == {f"repo:{login}/somewhere-else"}, kind


async def test_repositories_on_many_pages_are_added_and_removed(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, repositories=130, sizes=Sizes(), include=[]) as it:
        (login,) = it.sim.world.logins()
        await it.collect(login)
        before = it.sim.report()
        await it.collect(login)
        assert it.spent(before) == {"core": 0}

        before, oldest = it.sim.report(), it.sim.truth(login).repositories
        gone = min((each.repository for each in oldest), key=lambda each: (each["created_at"], each["id"]))
        it.sim.mutate.delete(gone["full_name"])
        await it.collect(login)
        assert await it.documents.count("repository") == 129
        assert await it.documents.count("repository", with_gone=True) == 130
        # The profile and the second page changed, and then both pages are read to see which one is gone.
        assert it.spent(before) == {"core": 4}


@pytest.mark.full
async def test_a_repository_deleted_during_paging_hides_no_other(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, repositories=130, sizes=Sizes(commits=1)) as it:
        (login,) = it.sim.world.logins()
        await it.collect(login)
        it.sim.faults.inject(FaultKind.BAD_GATEWAY, route="user.repos", contains="page=2")
        collecting = asyncio.create_task(it.collect(login, full=True))
        while it.sim.report().by_status.get("502", 0) == 0:
            await look_again()
        found = [each.repository for each in it.sim.truth(login).repositories]
        newest = max(found, key=lambda each: (each["created_at"], each["id"]))
        it.sim.mutate.delete(newest["full_name"])
        await collecting

        gone = [
            each.resource async for each in it.documents.iterate("commit", with_gone=True) if each.gone_at is not None
        ]
        assert set(gone) <= {f"repo:{newest['full_name']}"}
        assert await it.documents.count("repository") >= 129


async def test_documents_of_a_gone_repository_are_gone_too(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=SMALL, include=CONVERSATIONS) as it:
        (login,), name = it.sim.world.logins(), first_repository(it)
        await it.collect(login)
        inside = {kind: await resources_of(it, kind) for kind in ("issue", "pull_request", "commit")}
        it.sim.mutate.delete(name)
        await it.collect(login)

        assert all(f"repo:{name}" in there for there in inside.values()), "the repository held some of each"
        for kind, there in inside.items():
            assert await resources_of(it, kind) == there - {f"repo:{name}"}
            assert await it.documents.count(kind, with_gone=True) > await it.documents.count(kind)
        await assert_complete(it, login)


@pytest.mark.full
async def test_a_transferred_repository_is_found_although_the_former_owner_missed_it_meanwhile(
    tmp_path: Path, embedded_url: str
):
    """The new owner's run is the earlier one, but its list comes late: after the later run of the former owner."""
    async with deployed(tmp_path, embedded_url, users=2, sizes=SMALL, include=CONVERSATIONS) as it:
        one, two = it.sim.world.logins()
        await it.collect(one, two)
        moved = it.sim.truth(one).repositories[0].repository["full_name"]
        it.sim.mutate.transfer(moved, two)
        it.sim.faults.inject(FaultKind.BAD_GATEWAY, contains=f"/users/{two}/repos")
        theirs, formers = await it.collect(two, one)

        assert theirs.id < formers.id
        assert formers.completed_at is not None
        assert theirs.completed_at is not None
        assert theirs.completed_at > formers.completed_at
        await assert_complete(it, one, two)
        await assert_talk_is_complete(it, one, two)


@pytest.mark.full
async def test_a_repository_transferred_during_a_run_stays_with_the_new_owner(tmp_path: Path, embedded_url: str):
    """The former owner's run has it in its list, and reads on when the new owner has it all."""
    async with deployed(tmp_path, embedded_url, users=2, sizes=SMALL) as it:
        one, two = it.sim.world.logins()
        moved = it.sim.truth(one).repositories[0].repository
        it.sim.faults.inject(FaultKind.BAD_GATEWAY, contains=f"/repositories/{moved['id']}/", times=3)
        collecting = asyncio.create_task(it.collect(one))
        while it.sim.report().by_status.get("502", 0) < 3:
            await look_again()
        it.sim.mutate.transfer(moved["full_name"], two)
        await it.collect(two)
        (run,) = await collecting
        assert set(await it.failures(run)) == {
            f"the repository was transferred to {two}, and is collected with that user"
        }

        await it.collect(one, two)
        await assert_complete(it, one, two)


async def test_a_renamed_user_is_recognised_with_one_more_call(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, users=2, sizes=SMALL) as it:
        login, other = it.sim.world.logins()
        await it.collect(login)
        it.sim.mutate.rename_user(login, "Somebody-Else")
        before = it.sim.report()
        run = await it.collect_in_vain(login, pool=other)

        told = f"{login} is now called Somebody-Else: collect Somebody-Else from now on"
        assert run.last_error == f"USER_BASIC of user:{login}: {told}"
        assert told in await it.failures(run)
        assert it.sim.report().calls - before.calls == 4, "profile, repositories, events, and who it is"

        unknown = await it.collect_in_vain("nobody-at-all", pool=other)
        why = "404: Not Found: GitHub has no user 'nobody-at-all'; check the spelling"
        assert set(await it.failures(unknown)) == {"404: Not Found", why}
        assert it.sim.report().calls - before.calls == 4 + 3, "who never was is not looked for"


async def resources_of(it: Deployment, kind: str) -> set[str]:
    return {document.resource async for document in it.documents.iterate(kind)}


async def test_disabled_issues_are_gone(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=SMALL) as it:
        (login,), name = it.sim.world.logins(), first_repository(it)
        await it.collect(login)
        it.sim.mutate.disable_issues(name)
        (run,) = await it.collect(login)

        assert run.failed_jobs == 0
        await assert_complete(it, login)


@pytest.mark.full
async def test_a_list_longer_than_the_page_limit_is_read_from_both_ends(tmp_path: Path, embedded_url: str):
    behaviour = msgspec.structs.replace(CALM, largest_page_offset=500, cursors_reach_everything=False)
    async with deployed(tmp_path, embedded_url, sizes=Sizes(issues=1_250), behaviour=behaviour) as it:
        (login,) = it.sim.world.logins()
        (run,) = await it.collect(login)

        assert run.failed_jobs == 0
        assert it.sim.report().by_status["422"] >= 2
        await assert_complete(it, login)


@pytest.mark.full
async def test_a_query_that_times_out_is_halved_and_one_with_nulls_repeated(tmp_path: Path, embedded_url: str):
    behaviour = msgspec.structs.replace(CALM, graphql_nodes_in_time=2_600)
    async with deployed(tmp_path, embedded_url, sizes=LARGE, include=CONVERSATIONS, behaviour=behaviour) as it:
        (login,) = it.sim.world.logins()
        it.sim.faults.inject(FaultKind.PARTIAL, route="graphql", times=2)
        (run,) = await it.collect(login)

        assert run.failed_jobs == 0
        assert it.sim.report().by_status["502"] == 1
        await assert_talk_is_complete(it, login)


async def test_further_reviews_are_fetched_per_pull_request(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=Sizes(pulls=2, reviews=350), include=CONVERSATIONS) as it:
        (login,) = it.sim.world.logins()
        await it.collect(login)

        await assert_talk_is_complete(it, login)
        needed = it.sim.perfect_calls([login], ["reviews"]).graphql
        assert it.sim.report().spent["graphql"] <= needed
