"""What the figures mean, one rule at a time."""

from datetime import timedelta

import msgspec
import pytest

from tests.systems.github.statistics import world as w
from tests.systems.github.statistics.world import Repository, World, days_ago, run_of
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.storage.documents import Document
from tidegate.systems.github.statistics import Collaborator, Durations, InRepositories, Totals, item_store, summary
from tidegate.systems.github.statistics.item_store import Recount
from tidegate.systems.github.statistics.tables import statistics_items


def filled(found: Repository, kind: str, *bodies: dict[str, object]) -> Repository:
    for body in bodies:
        found.bodies[kind, f"{found.id}:{len(found.bodies)}"] = body
    return found


async def test_without_a_computation_there_are_no_statistics(world: World):
    assert await world.statistics.of_user("ann") is None
    assert (await world.statistics.overall()).totals == Totals()
    with pytest.raises(NotFound):
        await world.statistics.recompute("ann")


@pytest.mark.every_server
async def test_a_user_without_documents_has_no_statistics(world: World):
    """As when there is no such login: the run ended, and brought nothing."""
    await world.finalize("ann")

    assert await world.statistics.of_user("ann") is None
    assert (await world.statistics.overall()).totals == Totals()


async def test_a_user_with_only_a_profile_has_zero_values(small_world: World):
    await small_world.write_profile("ann")
    await small_world.finalize("ann")

    found = await small_world.of("ann")
    assert (found.repositories.total, found.in_repositories, found.by_user.active_days) == (0, InRepositories(), 0)
    assert (await small_world.statistics.overall()).totals == Totals(users=1)


async def test_actions_of_others_in_repositories_of_the_user_are_not_counted(small_world: World):
    mine = Repository(id=1, owner="ann", name="x")
    filled(mine, "commit", w.commit("ann", days_ago(1)), w.commit("dan", days_ago(2)), w.commit("dan", days_ago(2)))
    filled(mine, "pull_request", w.pull("dan", days_ago(4), days_ago(3), merged=True), w.pull("ann", days_ago(1)))
    await small_world.write_profile("ann")
    await small_world.write_repository(mine)
    await small_world.finalize("ann")

    found = await small_world.of("ann")
    assert (found.in_repositories.commits, found.by_user.commits) == (3, 1)
    assert (found.in_repositories.pull_requests.merged, found.by_user.pull_requests.merged) == (1, 0)
    assert found.in_repositories.pull_requests.merge_rate == 1
    assert found.by_user.pull_requests.merge_rate is None
    assert found.in_repositories.pull_requests.to_merge == Durations(cases=1, median_s=86_400, p90_s=86_400)
    assert found.in_repositories.top_collaborators == (Collaborator(login="dan", contributions=3),)
    await small_world.assert_right()


async def test_actions_in_repositories_of_another_user_count_as_soon_as_that_user_is_computed(small_world: World):
    theirs = filled(Repository(id=2, owner="bob", name="x"), "commit", w.commit("ann", days_ago(0)))
    await small_world.write_profile("ann")
    await small_world.finalize("ann")
    assert (await small_world.of("ann")).by_user.commits == 0

    await small_world.write_repository(theirs)
    await small_world.finalize("bob")

    found = await small_world.of("ann")
    assert (found.by_user.commits, found.by_user.current_streak.days, found.in_repositories.commits) == (1, 1, 0)


async def test_commits_of_a_fork_are_not_counted_until_it_is_no_longer_a_fork(small_world: World):
    fork = Repository(id=1, owner="ann", name="x", fork=True, language="C")
    filled(fork, "commit", w.commit("ann", days_ago(0)))
    filled(fork, "issue", w.issue("ann", days_ago(0)))
    await small_world.write_profile("ann")
    await small_world.write_repository(fork)
    await small_world.finalize("ann")
    found = await small_world.of("ann")
    assert (found.by_user.commits, found.in_repositories.commits, found.by_user.issues.opened) == (0, 0, 1)
    assert (found.repositories.forks, found.repositories.languages) == (1, ())

    fork.fork = False
    await small_world.write_repository(fork, items=False)
    await small_world.finalize("ann")

    await small_world.assert_right()
    assert (await small_world.of("ann")).by_user.commits == 1


@pytest.mark.every_server
async def test_documents_of_a_gone_repository_are_not_counted_and_return_with_it(world: World):
    mine = filled(Repository(id=1, owner="ann", name="x"), "commit", w.commit("ann", days_ago(0)))
    await world.write_profile("ann")
    await world.write_repository(mine)
    await world.finalize("ann")
    await world.list_repositories("ann")
    await world.finalize("ann")
    found = await world.of("ann")
    assert (found.repositories.total, found.in_repositories.commits, found.by_user.commits) == (0, 0, 0)
    await world.assert_right()

    await world.list_repositories("ann", mine)
    await world.finalize("ann")

    assert (await world.of("ann")).by_user.commits == 1
    await world.assert_right()


@pytest.mark.every_server
@pytest.mark.parametrize("first", ["ann", "bob"])
async def test_a_transferred_repository_is_counted_once_in_any_order_of_computation(world: World, first: str):
    second = "bob" if first == "ann" else "ann"
    moved = filled(Repository(id=1, owner="ann", name="x", stars=5), "commit", w.commit("dan", days_ago(0)))
    for login in ("ann", "bob"):
        await world.write_profile(login)
    await world.write_repository(moved)
    await world.finalize("ann", "bob")

    moved.owner = "bob"
    world.skew = timedelta(minutes=-10)  # the writer's clock is behind: the document looks older than before
    await world.write_repository(moved)
    await world.finalize(first)

    await world.assert_owned(first)
    assert (await world.statistics.overall()).totals.commits == (1 if first == "bob" else 0)
    await world.finalize(second)
    await world.assert_right()


async def test_a_user_who_loses_a_document_to_another_is_recomputed_immediately(small_world: World):
    moved = filled(Repository(id=1, owner="ann", name="x", stars=5), "commit", w.commit("dan", days_ago(0)))
    await small_world.write_repository(moved)
    await small_world.finalize("ann")
    moved.owner = "bob"
    await small_world.write_repository(moved)

    await small_world.finalize("bob")

    assert (await small_world.of("ann")).in_repositories.commits == 0
    totals = (await small_world.statistics.overall()).totals
    assert (totals.repositories, totals.stars, totals.commits) == (1, 5, 1)


async def test_a_document_committed_under_an_earlier_time_than_the_last_computation_is_counted(world: World):
    mine = filled(Repository(id=1, owner="ann", name="x"), "commit", w.commit("ann", days_ago(0)))
    await world.write_profile("ann")
    await world.write_repository(mine)
    await world.finalize("ann")

    world.skew = timedelta(days=-3)
    await world.write_repository(filled(mine, "commit", w.commit("ann", days_ago(1))))
    await world.finalize("ann")

    assert (await world.of("ann")).by_user.commits == 2
    await world.assert_right()


async def test_only_changes_are_read_again(world: World):
    mine = Repository(id=1, owner="ann", name="x")
    filled(mine, "commit", *(w.commit("ann", days_ago(n)) for n in range(30)))
    await world.write_profile("ann")
    await world.write_repository(mine)
    assert [await documents_read(world, "ann") for _ in range(2)] == [32, 0]

    mine.bodies["commit", "1:7"] = w.commit("dan", days_ago(7))
    await world.write_repository(filled(mine, "issue", w.issue("dan", days_ago(0))))

    assert [await documents_read(world, "ann") for _ in range(2)] == [2, 0]
    await world.assert_right()


async def documents_read(world: World, login: str) -> int:
    database, store = world.harness.database, world.harness.store
    held = await database.transaction(item_store.begin, login, login)
    recount = Recount(database, store, held, full=False)
    await recount.run()
    await database.transaction(summary.conclude, held, 1)
    world.counted.add(login)
    return recount.read


@pytest.mark.every_server
async def test_a_recomputation_finds_added_changed_and_removed_documents(world: World):
    mine = filled(Repository(id=1, owner="ann", name="x"), "commit", *(w.commit("ann", days_ago(n)) for n in range(4)))
    moved = filled(Repository(id=2, owner="ann", name="y"), "issue", w.issue("dan", days_ago(0)))
    for found in (mine, moved):
        await world.write_repository(found)
    await world.finalize("ann")
    del mine.bodies["commit", "1:0"]
    mine.bodies["commit", "1:1"] = w.commit("dan", days_ago(1))
    await world.relist(filled(mine, "commit", w.commit("eve", days_ago(2))), "commit")
    moved.owner = "bob"
    await world.write_repository(moved)

    await world.statistics.recompute("ann")

    await world.assert_owned("ann")


async def test_a_recomputation_repairs_damaged_rows(small_world: World):
    mine = filled(Repository(id=1, owner="ann", name="x"), "commit", w.commit("ann", days_ago(0)))
    await small_world.write_profile("ann")
    await small_world.write_repository(mine)
    await small_world.finalize("ann")
    corrupt = statistics_items.update().values(activity=None, author_id=None)
    await small_world.harness.database.transaction(lambda tx: tx.execute(corrupt))

    await small_world.statistics.recompute("ann")

    await small_world.assert_right()


async def test_a_renamed_account_is_one_user(small_world: World):
    mine = Repository(id=1, owner="ann", name="x")
    former, now = w.commit("dan", days_ago(9)), w.commit("dan", days_ago(1))
    now["author"] = {**now["author"], "login": "daniel"}
    await small_world.write_repository(filled(mine, "commit", former, now))
    await small_world.finalize("ann")

    found = (await small_world.of("ann")).in_repositories
    assert (found.collaborators, found.top_collaborators) == (1, (Collaborator(login="daniel", contributions=2),))


async def test_without_a_profile_the_owner_of_the_repositories_or_events_is_the_user(small_world: World):
    await small_world.write_repository(
        filled(Repository(id=1, owner="ann", name="x"), "commit", w.commit("ann", days_ago(0)))
    )
    await small_world.write_event("bob", "1", days_ago(3))
    await small_world.finalize("ann", "bob")

    assert (await small_world.of("ann")).by_user.commits == 1
    assert (await small_world.of("bob")).by_user.active_days == 1


async def test_a_login_is_case_insensitive(small_world: World):
    await small_world.write_profile("ann")
    run = msgspec.structs.replace(run_of("ann"), login="Ann")
    await small_world.statistics.finalize(run)

    found = await small_world.statistics.of_user("aNN")
    assert found is not None
    assert (found.login, found.run_id) == ("Ann", 1)


async def test_a_late_finalizer_of_an_older_run_does_not_restore_its_number(small_world: World):
    await small_world.write_profile("ann")
    await small_world.statistics.finalize(run_of("ann", 7))
    await small_world.statistics.finalize(run_of("ann", 5))

    assert (await small_world.of("ann")).run_id == 7


async def test_runs_of_other_sources_are_ignored(small_world: World):
    await small_world.statistics.finalize(msgspec.structs.replace(run_of("ann"), source="shelves"))

    assert await small_world.statistics.of_user("ann") is None


async def test_an_unreadable_document_is_not_counted_and_affects_no_other(world: World):
    odd = [
        Document.of(kind, "odd", owner="ann", resource="repo:ann/x", body={"commit": 7, "user": [], "full_name": 3})
        for kind in ("repository", "commit", "issue", "review")
    ]
    mine = filled(Repository(id=1, owner="ann", name="x"), "commit", w.commit("ann", days_ago(0)))
    await world.write_profile("ann")
    await world.write_repository(mine)
    await world.write(*odd)
    await world.finalize("ann")

    found = await world.of("ann")
    assert (found.repositories.total, found.in_repositories.commits, found.by_user.commits) == (1, 1, 1)
    assert found.in_repositories.issues.opened == 0


async def test_future_days_are_not_active_and_end_no_streak(small_world: World):
    mine = filled(Repository(id=1, owner="ann", name="x"), "commit", w.commit("ann", days_ago(-1)))
    await small_world.write_profile("ann")
    await small_world.write_repository(filled(mine, "commit", w.commit("ann", days_ago(0))))
    await small_world.finalize("ann")

    found = (await small_world.of("ann")).by_user
    assert (found.commits, found.active_days, found.current_streak.days) == (2, 1, 1)
    overall = await small_world.statistics.overall()
    lists = (overall.by_day, overall.by_week, overall.by_month)
    assert [[period.users[0].contributions for period in periods] for periods in lists] == [[1], [1], [1]]
    assert [[period.contributions for period in periods] for periods in lists] == [[1], [1], [1]]


async def test_the_current_streak_follows_the_clock_without_a_new_run(small_world: World):
    mine = filled(Repository(id=1, owner="ann", name="x"), "commit", w.commit("ann", days_ago(0)))
    await small_world.write_profile("ann")
    await small_world.write_repository(mine)
    await small_world.finalize("ann")
    lengths: list[int] = []
    for _ in range(3):
        lengths.append((await small_world.of("ann")).by_user.current_streak.days)
        small_world.harness.clock.advance(timedelta(days=1))

    assert lengths == [1, 1, 0]


async def test_statistics_survive_a_round_trip_through_json(small_world: World):
    await small_world.write_profile("ann")
    await small_world.write_repository(
        filled(Repository(id=1, owner="ann", name="x"), "commit", w.commit("ann", days_ago(0)))
    )
    await small_world.finalize("ann")

    for found in (await small_world.of("ann"), await small_world.statistics.overall()):
        assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found


@pytest.mark.parametrize("days", [0, -1, 367, True])
async def test_an_invalid_period_is_refused(small_world: World, days: int):
    with pytest.raises(InvalidArgument):
        await small_world.statistics.overall(days=days)


async def test_invalid_names_are_refused(small_world: World):
    for login in ("", "a|b"):
        with pytest.raises(InvalidArgument):
            await small_world.statistics.of_user(login)
        with pytest.raises(InvalidArgument):
            await small_world.statistics.recompute(login)
