"""What workers get: the right secret, another one when it is refused, and a clear no when there is none."""

import asyncio

import pytest

from tests.engine.credentials.harness import APP, INSTALLATION, CredentialHarness, app_key
from tidegate.core.errors import InvalidSettings, NoCredential, Unavailable
from tidegate.engine.credentials import CredentialState, records, secret_cache
from tidegate.engine.credentials.secret_cache import SecretElsewhere

REASON = "401: Bad credentials"


async def app_added(harness: CredentialHarness) -> str:
    private, public = app_key()
    harness.sim.credentials.register_app(APP, public, {INSTALLATION: (1, 1)})
    added = await harness.book.add_installation(private, app_id=APP, installation_id=INSTALLATION, owner="x")
    return added.allowance


async def state_of(harness: CredentialHarness, name: str) -> CredentialState:
    return (await harness.book.get(name)).state


async def test_a_refused_secret_is_marked_invalid_and_no_other_is_left(harness: CredentialHarness):
    added = await harness.book.add_token(harness.token())
    secret = await harness.book.secret_of(added.allowance)

    assert not await harness.book.rejected(added.allowance, secret, REASON)

    found = await harness.book.get(added.name)
    assert (found.state, found.invalid_reason) == (CredentialState.INVALID, REASON)
    with pytest.raises(NoCredential, match=added.allowance):
        await harness.book.secret_of(added.allowance)


@pytest.mark.every_server
@pytest.mark.race
async def test_many_refusals_of_one_secret_invalidate_only_that_secret(harness: CredentialHarness):
    """Fifty calls were under way when it was revoked."""
    first = await harness.book.add_token(harness.token())
    await harness.book.add_token(harness.token(ordinal=1), name="second")
    await harness.book.secret_of(first.allowance)

    answers = await asyncio.gather(
        *(harness.again().book.rejected(first.allowance, harness.token(), REASON) for _ in range(10)),
        *(harness.book.rejected(first.allowance, harness.token(), REASON) for _ in range(10)),
    )

    assert set(answers) == {True}
    assert await state_of(harness, first.name) is CredentialState.INVALID
    assert await state_of(harness, "second") is CredentialState.VALID
    assert await harness.book.secret_of(first.allowance) == harness.token(ordinal=1)


async def test_a_refusal_of_a_replaced_secret_does_not_invalidate_the_new_one(small_harness: CredentialHarness):
    harness = small_harness
    added = await harness.book.add_token(harness.token())
    worker = harness.again().book
    old = await worker.secret_of(added.allowance)
    await harness.book.add_token(harness.token(ordinal=1))
    assert await worker.secret_of(added.allowance) == old, "it is kept for a while"

    assert await worker.rejected(added.allowance, old, REASON)

    assert await worker.secret_of(added.allowance) == harness.token(ordinal=1)
    assert await state_of(harness, added.name) is CredentialState.VALID


@pytest.mark.every_server
async def test_results_for_an_old_secret_do_not_apply_to_the_new_one(harness: CredentialHarness):
    added = await harness.book.add_token(harness.token())
    old = await harness.database.read(records.get, "github", added.name)
    assert old.sealed is not None
    await harness.book.add_token(harness.token(ordinal=1))

    assert not await harness.database.transaction(records.mark_invalid, old, REASON)
    assert not await harness.database.transaction(records.reseal, old, old.sealed)
    assert await state_of(harness, added.name) is CredentialState.VALID
    assert await harness.again().book.secret_of(added.allowance) == harness.token(ordinal=1)

    await harness.book.rejected(added.allowance, harness.token(ordinal=1), REASON)
    assert not await harness.database.transaction(records.confirm, old, {})
    assert await state_of(harness, added.name) is CredentialState.INVALID


async def test_a_replaced_secret_is_read_again_within_a_minute(
    small_harness: CredentialHarness, monkeypatch: pytest.MonkeyPatch
):
    harness, now = small_harness, 1000.0
    monkeypatch.setattr(secret_cache, "monotonic", lambda: now)
    added = await harness.book.add_token(harness.token())
    worker = harness.again().book
    await worker.secret_of(added.allowance)
    await harness.book.add_token(harness.token(ordinal=1))

    now += 59
    assert await worker.secret_of(added.allowance) == harness.token()
    now += 2
    assert await worker.secret_of(added.allowance) == harness.token(ordinal=1)


async def test_the_cache_of_secrets_is_bounded(small_harness: CredentialHarness, monkeypatch: pytest.MonkeyPatch):
    harness = small_harness
    monkeypatch.setattr(secret_cache, "_MOST_KEPT", 2)
    for of in range(3):
        added = await harness.book.add_token(harness.token(of))
        await harness.book.secret_of(added.allowance)

    assert len(harness.book.secrets._held) == 2  # pyright: ignore[reportPrivateUsage]
    for one in await harness.book.list():
        assert await harness.book.secret_of(one.allowance)


async def test_concurrent_requests_of_one_installation_share_one_token(small_harness: CredentialHarness):
    allowance = await app_added(small_harness)
    worker = small_harness.again().book

    tokens = await asyncio.gather(*(worker.secret_of(allowance) for _ in range(30)))

    assert len(set(tokens)) == 1
    await worker.close()


async def test_a_revoked_token_of_an_installation_is_replaced(small_harness: CredentialHarness):
    allowance = await app_added(small_harness)
    first = await small_harness.book.secret_of(allowance)
    small_harness.sim.credentials.revoke(first)

    assert await small_harness.book.rejected(allowance, first, REASON)

    second = await small_harness.book.secret_of(allowance)
    assert second != first
    assert {one.state for one in await small_harness.book.list()} == {CredentialState.VALID}
    assert not await small_harness.book.rejected(allowance, second, REASON), "not in a loop"
    assert {one.state for one in await small_harness.book.list()} == {CredentialState.INVALID}


async def test_an_uninstalled_app_is_marked_invalid_with_the_reason(small_harness: CredentialHarness):
    allowance = await app_added(small_harness)
    small_harness.sim.credentials.uninstall(APP, INSTALLATION)
    worker = small_harness.again().book

    with pytest.raises(NoCredential):
        await worker.secret_of(allowance)

    (found,) = await worker.list()
    assert (found.state, found.invalid_reason) == (
        CredentialState.INVALID,
        f"the app {APP} has no installation {INSTALLATION}",
    )


@pytest.mark.every_server
async def test_a_configured_token_is_used_for_all_while_no_credential_is_stored(harness: CredentialHarness):
    await harness.book.borrow(harness.token())
    await harness.book.register()

    (known,) = await harness.book.list()
    assert (known.name, known.kind, known.account) == ("GITHUB_TOKEN", "environment", harness.login())
    assert await harness.good_members() == [known.allowance]
    assert await harness.book.secret_of(known.allowance) == harness.token()
    assert await harness.book.pool_for("anybody") == "github"
    rows = await harness.rows("SELECT secret, fingerprint FROM credentials")
    assert rows[0].secret is None
    assert harness.token() not in rows[0].fingerprint


async def test_a_process_without_the_configured_token_starts_runs_for_processes_that_have_it(
    small_harness: CredentialHarness,
):
    await small_harness.book.borrow(small_harness.token())
    without = small_harness.again().book

    assert await without.pool_for("anybody") == "github"


async def test_a_configured_token_removed_by_another_process_is_no_longer_used(small_harness: CredentialHarness):
    await small_harness.book.borrow(small_harness.token())
    await small_harness.again().book.remove("GITHUB_TOKEN")

    with pytest.raises(
        NoCredential, match=r"GITHUB_TOKEN was removed or rejected while this process ran.*credentials add"
    ):
        await small_harness.book.pool_for("anybody")


async def test_the_owner_of_a_configured_token_is_requested_once(small_harness: CredentialHarness):
    await small_harness.book.borrow(small_harness.token())
    calls = small_harness.sim.report().calls

    again = small_harness.again().book
    await again.borrow(small_harness.token())

    assert small_harness.sim.report().calls == calls
    assert again.secrets.borrowed is not None


async def test_a_stored_credential_replaces_a_configured_token(small_harness: CredentialHarness):
    harness = small_harness
    await harness.book.borrow(harness.token(0))
    await harness.book.register()
    stored = await harness.book.add_token(harness.token(1))
    later = harness.again().book
    await later.borrow(harness.token(0))
    await later.register()

    assert later.secrets.borrowed is None
    assert await harness.good_members() == [stored.allowance]


async def test_a_configured_and_a_stored_token_of_one_account_share_an_allowance(small_harness: CredentialHarness):
    harness = small_harness
    await harness.book.borrow(harness.token(ordinal=0))
    await harness.book.register()

    stored = await harness.book.add_token(harness.token(ordinal=1))
    await harness.book.register()

    assert await harness.good_members() == [stored.allowance]
    assert await harness.book.secret_of(stored.allowance) == harness.token(ordinal=1)


async def test_a_configured_token_of_another_account_replaces_the_previous_one(small_harness: CredentialHarness):
    harness = small_harness
    await harness.book.borrow(harness.token(0))
    await harness.book.register()
    later = harness.again().book

    await later.borrow(harness.token(1))
    await later.register()

    (known,) = await later.list()
    assert (known.account, await harness.good_members()) == (harness.login(1), [known.allowance])


async def test_a_refused_configured_token_is_reported_at_the_start(small_harness: CredentialHarness):
    with pytest.raises(InvalidSettings, match=r"GITHUB_TOKEN cannot be used: .* says 401: Bad credentials") as told:
        await small_harness.book.borrow("ghp_nonsense")
    assert "nonsense" not in str(told.value)


async def test_a_refused_configured_token_is_checked_again_at_the_next_start(small_harness: CredentialHarness):
    harness = small_harness
    await harness.book.borrow(harness.token())
    (known,) = await harness.book.list()
    harness.sim.credentials.revoke(harness.token())
    assert not await harness.book.rejected(known.allowance, harness.token(), REASON)
    assert (await harness.book.list())[0].state is CredentialState.INVALID
    with pytest.raises(NoCredential):
        await harness.book.secret_of(known.allowance)

    with pytest.raises(InvalidSettings):
        await harness.again().book.borrow(harness.token())
    harness.sim.credentials.reinstate(harness.token())
    later = harness.again().book
    await later.borrow(harness.token())
    assert await later.secret_of(known.allowance) == harness.token()


async def test_a_process_without_the_configured_token_reports_the_remedy(small_harness: CredentialHarness):
    await small_harness.book.borrow(small_harness.token())
    (known,) = await small_harness.book.list()

    with pytest.raises(SecretElsewhere, match=r"not given GITHUB_TOKEN.*credentials add") as told:
        await small_harness.again().book.secret_of(known.allowance)
    assert isinstance(told.value, Unavailable), "another process can do the job: that is no attempt of the job's"


async def test_without_any_credential_both_ways_to_add_one_are_named(small_harness: CredentialHarness):
    harness = small_harness
    with pytest.raises(InvalidSettings, match=r"set GITHUB_TOKEN .* or store one with `tidegate credentials add`"):
        await harness.book.require_any()

    added = await harness.book.add_token(harness.token())
    await harness.book.require_any()
    await harness.book.rejected(added.allowance, harness.token(), REASON)
    with pytest.raises(InvalidSettings, match=f"{added.name}: rejected"):
        await harness.book.require_any()


@pytest.mark.race
async def test_processes_started_together_with_one_token_can_all_use_it(harness: CredentialHarness):
    processes = [harness.again().book for _ in range(8)]

    await asyncio.gather(*(book.borrow(harness.token()) for book in processes))

    (known,) = await harness.book.list()
    assert [await book.secret_of(known.allowance) for book in processes] == [harness.token()] * 8


@pytest.mark.race
async def test_processes_started_together_with_tokens_of_two_accounts_leave_one_row(harness: CredentialHarness):
    processes = [(harness.again().book, harness.token(of)) for of in (0, 1) * 4]

    await asyncio.gather(*(book.borrow(token) for book, token in processes))

    (known,) = await harness.book.list()
    winner = [harness.token(of) for of in (0, 1) if harness.login(of) == known.account]
    assert await harness.rows("SELECT name FROM credential_allowances") == [(known.allowance,)]
    assert {await book.secret_of(known.allowance) for book, token in processes if token in winner} == set(winner)


async def test_a_configured_token_is_used_for_a_row_written_for_another_token_of_its_account(
    small_harness: CredentialHarness,
):
    harness = small_harness
    first, second = harness.again().book, harness.again().book
    await first.borrow(harness.token(ordinal=0))
    await second.borrow(harness.token(ordinal=1))
    (known,) = await harness.book.list()

    assert await first.secret_of(known.allowance) == harness.token(ordinal=0)
    assert await first.rejected(known.allowance, harness.token(ordinal=0), REASON), "another process can make the call"
    assert await first.rejected(known.allowance, harness.token(ordinal=0), REASON), "and so for calls under way"

    with pytest.raises(SecretElsewhere):
        await first.secret_of(known.allowance)
    assert await state_of(harness, known.name) is CredentialState.VALID
    assert await second.secret_of(known.allowance) == harness.token(ordinal=1)


async def test_a_configured_token_does_not_replace_a_stored_credential_of_the_same_name(
    small_harness: CredentialHarness,
):
    harness = small_harness
    await harness.book.add_token(harness.token(1), name="GITHUB_TOKEN", user_id="ada")

    with pytest.raises(records.NameTaken):
        await harness.again().book.borrow(harness.token(0))

    assert (await harness.book.get("GITHUB_TOKEN")).user_id == "ada"


@pytest.mark.race
async def test_of_two_accounts_added_concurrently_under_one_name_one_is_refused(harness: CredentialHarness):
    books = [harness.again().book for _ in range(2)]

    added = await asyncio.gather(
        *(book.add_token(harness.token(of), name="ours") for of, book in enumerate(books)), return_exceptions=True
    )

    assert sorted(type(one).__name__ for one in added) == ["Credential", "NameTaken"]
