"""Credentials as people look after them, on every database."""

import asyncio
from datetime import timedelta

import pytest
from pydantic import SecretStr
from sqlalchemy import insert

from tests.engine.credentials.harness import APP, INSTALLATION, POOL, CredentialHarness, app_key
from tidegate.core.errors import InvalidArgument, NoCredential, NotFound
from tidegate.engine.credentials import (
    AllowanceElsewhere,
    Credential,
    CredentialKind,
    CredentialState,
    NameTaken,
    SecretRefused,
    pool_of,
)
from tidegate.engine.credentials.keys import EncryptionKey
from tidegate.engine.tables import allowance_notes
from tidegate.primitives.gate import CredentialLimits, PoolStatus
from tidegate.storage.sql import Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.github.settings import GithubSettings


async def test_a_token_is_stored_with_its_owner_and_used_for_all_subjects(harness: CredentialHarness):
    added = await harness.book.add_token(harness.token())

    assert (added.name, added.account, added.owner) == (harness.login(),) * 3
    assert (added.kind, added.state, added.pool, added.user_id) == (
        CredentialKind.TOKEN,
        CredentialState.VALID,
        POOL,
        None,
    )
    assert added.details == {"scopes": ["read:org", "read:user", "repo"]}
    assert added.checked_at == added.created_at
    assert await harness.book.list() == [added]
    assert await harness.book.get(added.name) == added
    assert await harness.good_members() == [added.allowance]
    assert await harness.book.secret_of(added.allowance) == harness.token()
    assert await harness.book.pool_for("anybody") == POOL


@pytest.mark.parametrize("how", ["register", "add_token", "test", "borrow"])
async def test_adding_a_credential_to_an_empty_gate_restores_its_recorded_blocks_first(
    how: str, small_harness: CredentialHarness, embedded: Valkey
):
    book, token = small_harness.book, small_harness.token()
    if how == "borrow":
        await book.borrow(token)
    else:
        await book.add_token(token)
    (known,) = await book.list()
    await small_harness.database.transaction(must_rest, known.allowance)
    await embedded.execute("FLUSHALL")

    match how:
        case "register":
            await book.register()
        case "add_token":
            await book.add_token(token)
        case "test":
            await book.test(known.name)
        case _:
            await book.borrow(token)

    assert (await small_harness.members())[known.allowance].blocked_in_ms > 50_000


def must_rest(tx: Transaction, credential: str) -> None:
    """As the answer to a call would have written it."""
    until = tx.now + timedelta(minutes=1)
    note = {"source": "github", "credential": credential, "bucket": "core", "pool": POOL, "blocked_until": until}
    tx.execute(insert(allowance_notes).values(note))


async def test_two_tokens_of_one_account_are_one_credential_in_the_gate(small_harness: CredentialHarness):
    harness = small_harness
    first = await harness.book.add_token(harness.token())
    second = await harness.book.add_token(harness.token(ordinal=1), name="laptop", owner="Ada")

    assert first.allowance == second.allowance
    assert await harness.good_members() == [first.allowance]
    assert await harness.book.secret_of(first.allowance) == harness.token(), "always the same one: ETags belong to it"


async def test_an_account_of_the_shared_pool_cannot_be_bound_to_one_user(harness: CredentialHarness):
    await harness.book.add_token(harness.token())

    with pytest.raises(AllowanceElsewhere, match=f"{harness.login()} already serves everybody"):
        await harness.book.add_token(harness.token(ordinal=1), name="mine", user_id="ada")
    await harness.book.remove(harness.login())
    await harness.book.add_token(harness.token(ordinal=1), name="mine", user_id="ada")
    with pytest.raises(AllowanceElsewhere, match="already serves only the user 'ada'"):
        await harness.book.add_token(harness.token())


async def test_an_own_credential_of_a_user_is_used_for_runs_of_that_user_only(small_harness: CredentialHarness):
    harness = small_harness
    own = await harness.book.add_token(harness.token(), user_id="ada")

    assert own.pool == pool_of("github", "ada") != POOL
    assert await harness.book.pool_for("ada") == own.pool
    with pytest.raises(NoCredential, match=r"no valid credential for 'bob'.*credentials add"):
        await harness.book.pool_for("bob")
    assert await harness.members() == {}
    assert await harness.good_members(own.pool) == [own.allowance]

    shared = await harness.book.add_token(harness.token(1))
    assert (await harness.book.pool_for("bob"), await harness.book.pool_for("ada")) == (shared.pool, own.pool)
    await harness.book.remove(own.name)
    assert await harness.book.pool_for("ada") == POOL


async def test_adding_the_same_name_replaces_the_secret(small_harness: CredentialHarness):
    harness = small_harness
    first = await harness.book.add_token(harness.token())
    second = await harness.book.add_token(harness.token(ordinal=1), owner="Ada")

    assert [one.name for one in await harness.book.list()] == [first.name]
    assert (second.owner, second.created_at) == ("Ada", first.created_at)
    assert await harness.book.secret_of(first.allowance) == harness.token(ordinal=1)


async def test_a_name_cannot_move_to_another_account(small_harness: CredentialHarness):
    harness = small_harness
    await harness.book.add_token(harness.token(), name="ours")

    with pytest.raises(NameTaken, match=f"'ours' is the name of a credential of {harness.login()}"):
        await harness.book.add_token(harness.token(1), name="ours")
    assert await harness.good_members() == [(await harness.book.get("ours")).allowance]


async def test_a_default_name_is_changed_when_it_is_taken(small_harness: CredentialHarness):
    harness = small_harness
    await harness.book.add_token(harness.token(1), name=harness.login(0))

    added = await harness.book.add_token(harness.token(0))

    assert added.name == added.allowance != harness.login(0)


@pytest.mark.every_server
async def test_a_removed_credential_is_no_longer_used(harness: CredentialHarness):
    added = await harness.book.add_token(harness.token())
    elsewhere = harness.again().book
    await elsewhere.secret_of(added.allowance)

    assert await harness.book.remove(added.name) == added

    assert await harness.members() == {}
    assert await harness.book.list() == []
    assert await harness.rows("SELECT * FROM credential_allowances") == []
    with pytest.raises(NoCredential):
        await harness.book.secret_of(added.allowance)
    with pytest.raises(NotFound, match=added.name):
        await harness.book.remove(added.name)


async def test_removing_one_token_of_an_account_keeps_the_other(small_harness: CredentialHarness):
    harness = small_harness
    first = await harness.book.add_token(harness.token())
    await harness.book.add_token(harness.token(ordinal=1), name="laptop")

    await harness.book.remove(first.name)

    assert await harness.good_members() == [first.allowance]
    assert await harness.book.secret_of(first.allowance) == harness.token(ordinal=1)


async def test_a_token_refused_by_the_upstream_is_not_stored(small_harness: CredentialHarness):
    harness = small_harness
    with pytest.raises(SecretRefused, match="401: Bad credentials"):
        await harness.book.add_token("ghp_nonsense")

    assert await harness.book.list() == []
    assert await harness.members() == {}


async def test_a_test_reports_the_remaining_quota_and_the_scopes(small_harness: CredentialHarness):
    harness = small_harness
    added = await harness.book.add_token(harness.token())

    check = await harness.book.test(added.name)

    assert (check.is_valid, check.account, check.scopes) == (True, harness.login(), ["read:org", "read:user", "repo"])
    assert (check.left["core"].limit, check.left["core"].remaining) == (5_000, 4_999)
    assert check.left["core"].resets_at > added.created_at
    assert (await harness.book.get(added.name)).checked_at != added.checked_at


async def test_a_failed_test_is_recorded_and_a_successful_one_clears_it(harness: CredentialHarness):
    added = await harness.book.add_token(harness.token())
    harness.sim.credentials.revoke(harness.token())

    check = await harness.book.test(added.name)

    assert (check.is_valid, check.reason) == (False, "401: Bad credentials")
    found = await harness.book.get(added.name)
    assert (found.state, found.invalid_reason) == (CredentialState.INVALID, "401: Bad credentials")
    assert found.invalid_at is not None
    assert found.invalid_at - found.created_at < timedelta(minutes=1)
    assert await harness.good_members() == []
    await harness.book.register()
    assert await harness.good_members() == [], "a new start does not use it either"

    harness.sim.credentials.reinstate(harness.token())
    assert (await harness.book.test(added.name)).is_valid
    found = await harness.book.get(added.name)
    assert (found.state, found.invalid_reason, found.invalid_at) == (CredentialState.VALID, None, None)
    assert await harness.good_members() == [added.allowance]


async def test_a_new_secret_makes_an_invalid_credential_valid(small_harness: CredentialHarness):
    harness = small_harness
    added = await harness.book.add_token(harness.token())
    harness.sim.credentials.revoke(harness.token())
    await harness.book.test(added.name)

    again = await harness.book.add_token(harness.token(ordinal=1))

    assert (again.name, again.state, again.invalid_reason) == (added.name, CredentialState.VALID, None)
    assert await harness.good_members() == [added.allowance]


async def test_a_token_stored_without_a_check_gets_its_account_when_it_is_tested(small_harness: CredentialHarness):
    harness = small_harness
    known = await harness.book.add_token(harness.token())
    unasked = await harness.book.add_token(harness.token(ordinal=1), name="second", owner="Ada", check=False)
    assert unasked.allowance.startswith("token-")
    assert unasked.checked_at is None
    assert await harness.good_members() == sorted([known.allowance, unasked.allowance])

    await harness.book.test("second")

    assert (await harness.book.get("second")).allowance == known.allowance
    assert await harness.good_members() == [known.allowance]
    assert len(await harness.rows("SELECT * FROM credential_allowances")) == 1


async def test_storing_without_a_check_needs_the_owner(small_harness: CredentialHarness):
    harness = small_harness
    with pytest.raises(InvalidArgument, match="owner"):
        await harness.book.add_token(harness.token(), check=False)


async def test_an_app_is_stored_with_its_key_and_gets_tokens(small_harness: CredentialHarness):
    harness = small_harness
    private, public = app_key()
    harness.sim.credentials.register_app(APP, public, {INSTALLATION: (1, 1)})

    added = await harness.book.add_installation(
        private, app_id=APP, installation_id=INSTALLATION, owner="Platform team"
    )

    assert added.kind is CredentialKind.INSTALLATION
    assert added.details == {"app_id": APP, "installation_id": INSTALLATION}
    assert await harness.good_members() == [added.allowance]
    issued = await harness.book.secret_of(added.allowance)
    assert issued.startswith("ghs_")
    assert await harness.book.secret_of(added.allowance) == issued
    check = await harness.book.test(added.name)
    assert (check.is_valid, check.left["core"].limit) == (True, 5_000)


async def test_an_installation_spends_its_whole_window_and_a_token_leaves_the_floor(
    small_harness: CredentialHarness, monkeypatch: pytest.MonkeyPatch
):
    """A token's account has other programs that spend its quota; an installation has none."""
    harness, floors = small_harness, dict[str, int]()
    register = harness.gate.register

    async def note(name: str, *, pool: str, limits: CredentialLimits) -> None:
        floors[name] = limits.floor
        await register(name, pool=pool, limits=limits)

    monkeypatch.setattr(harness.gate, "register", note)
    private, public = app_key()
    harness.sim.credentials.register_app(APP, public, {INSTALLATION: (1, 1)})
    app = await harness.book.add_installation(private, app_id=APP, installation_id=INSTALLATION, owner="Platform team")
    token = await harness.book.add_token(harness.token(), owner="Platform team")
    expected = {app.allowance: 0, token.allowance: harness.settings.gate.floor}
    assert floors == expected
    assert expected[token.allowance] > 0

    floors.clear()
    await harness.again().book.register()
    assert floors == expected, "also after a restart"


@pytest.mark.parametrize("trouble", ["another key", "no such installation", "no such app"])
async def test_an_app_that_gets_no_token_is_not_stored(small_harness: CredentialHarness, trouble: str):
    harness = small_harness
    private, public = app_key()
    _, other = app_key(1)
    harness.sim.credentials.register_app(APP, other if trouble == "another key" else public, {INSTALLATION: (1, 1)})

    with pytest.raises(SecretRefused):
        await harness.book.add_installation(
            private,
            app_id=APP + (trouble == "no such app"),
            installation_id=INSTALLATION + (trouble == "no such installation"),
            owner="Platform team",
        )
    assert await harness.book.list() == []


@pytest.mark.smoke
@pytest.mark.every_server
@pytest.mark.race
async def test_concurrent_additions_of_one_account_to_two_pools_succeed_once(harness: CredentialHarness):
    other = harness.again().book

    results = await asyncio.gather(
        harness.book.add_token(harness.token(), name="all", owner="x"),
        other.add_token(harness.token(ordinal=1), name="one", owner="x", user_id="ada"),
        return_exceptions=True,
    )

    assert sorted(type(result).__name__ for result in results) == ["AllowanceElsewhere", "Credential"]
    (stored,) = await harness.book.list()
    assert await harness.good_members(stored.pool) == [stored.allowance]


@pytest.mark.every_server
@pytest.mark.race
async def test_credentials_added_and_removed_concurrently_leave_no_rows_or_keys(harness: CredentialHarness):
    tokens = {f"t{n}": harness.token(ordinal=n) for n in range(6)}
    offices = {name: harness.again() for name in tokens}

    added = await asyncio.gather(*(offices[n].book.add_token(token, name=n) for n, token in tokens.items()))
    assert len({one.allowance for one in added}) == 1
    assert len(await harness.book.list()) == 6
    await asyncio.gather(*(offices[name].book.remove(name) for name in tokens))

    assert await harness.book.list() == []
    assert await harness.rows("SELECT * FROM credential_allowances") == []
    await harness.book.register()
    assert await harness.members() == {}


@pytest.mark.race
async def test_a_credential_added_again_during_its_removal_is_usable(
    small_harness: CredentialHarness, monkeypatch: pytest.MonkeyPatch
):
    harness, other = small_harness, small_harness.again()
    added = await harness.book.add_token(harness.token())
    dismiss = harness.gate.dismiss

    async def too_late(credential: str) -> None:
        await other.book.add_token(harness.token())
        await dismiss(credential)

    monkeypatch.setattr(harness.gate, "dismiss", too_late)
    await harness.book.remove(added.name)

    assert [one.name for one in await harness.book.list()] == [added.name]
    assert await harness.good_members() == [added.allowance]


@pytest.mark.smoke
@pytest.mark.race
async def test_a_credential_added_during_a_check_of_the_leader_is_kept(
    small_harness: CredentialHarness, monkeypatch: pytest.MonkeyPatch
):
    harness, other = small_harness, small_harness.again()
    status = harness.gate.status

    async def after_another_came(pool: str) -> PoolStatus:
        await other.book.add_token(harness.token())
        return await status(pool)

    async def never(credential: str) -> None:
        raise AssertionError(f"{credential} was dismissed, and what is known of its allowance with it")

    with monkeypatch.context() as patched:
        patched.setattr(harness.gate, "status", after_another_came)
        patched.setattr(harness.gate, "dismiss", never)
        await harness.book.register()

    (added,) = await harness.book.list()
    assert await harness.good_members() == [added.allowance]


async def test_gate_and_sql_agree_after_registration(small_harness: CredentialHarness):
    harness = small_harness
    stays = await harness.book.add_token(harness.token(0))
    moved = await harness.book.add_token(harness.token(1))
    await harness.book.remove(moved.name)
    await harness.gate.register(moved.allowance, pool=POOL)  # as if the removing process had died before that
    await harness.gate.dismiss(stays.allowance)
    back = await harness.book.add_token(harness.token(1), user_id="ada")

    await harness.book.register()

    assert await harness.good_members() == [stays.allowance]
    assert await harness.good_members(back.pool) == [back.allowance]


@pytest.mark.full
async def test_many_credentials_are_registered(small_harness: CredentialHarness):
    harness = small_harness
    tokens = [f"ghp_{n:036}" for n in range(120)]
    for n, token in enumerate(tokens):
        await harness.book.add_token(token, name=f"n{n}", owner="x", user_id=f"u{n}", check=False)
    other = harness.again()
    await harness.gate.dismiss((await other.book.get("n7")).allowance)

    await other.book.register()

    assert await harness.good_members(pool_of("github", "u7")) == [(await other.book.get("n7")).allowance]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"secret": ""}, "must not be empty"),
        ({"secret": "two words"}, "one line of printable ASCII"),
        ({"secret": "ghp_é"}, "one line of printable ASCII"),
        ({"secret": "x" * 5_000}, "one line of printable ASCII"),
        ({"secret": "-----BEGIN PRIVATE KEY-----"}, "--app-id"),
        ({"name": "a|b"}, "none of"),
        ({"name": "x" * 101}, "at most 100"),
        ({"owner": "x" * 201}, "at most 200"),
        ({"user_id": "x" * 81}, "at most 80"),
        ({"user_id": ""}, "must not be empty"),
    ],
)
async def test_invalid_arguments_are_refused_without_showing_secrets(
    small_harness: CredentialHarness, given: dict[str, str], why: str
):
    arguments = {"secret": "ghp_hunter2", "owner": "x", **given}
    secret = arguments.pop("secret")

    with pytest.raises(InvalidArgument, match=why) as told:
        await small_harness.book.add_token(secret, check=False, **arguments)  # pyright: ignore[reportArgumentType]
    assert not secret or secret not in str(told.value)
    assert await small_harness.book.list() == []


@pytest.mark.parametrize("key", ["", "hunter2", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"])
async def test_an_invalid_private_key_is_refused_and_not_shown(small_harness: CredentialHarness, key: str):
    with pytest.raises(InvalidArgument, match="must be an RSA key in PEM") as told:
        await small_harness.book.add_installation(key, app_id=1, installation_id=1, owner="x", check=False)
    assert "hunter2" not in str(told.value)


async def test_a_credential_of_another_server_is_not_sent_to_this_one(small_harness: CredentialHarness):
    harness = small_harness
    added = await harness.book.add_token(harness.token())
    github = harness.settings.section(GithubSettings).model_copy(update={"api_url": "http://127.0.0.1:9"})
    other = harness.again(github=github).book

    with pytest.raises(NoCredential):
        await other.secret_of(added.allowance)
    with pytest.raises(InvalidArgument, match="is only for"):
        await other.test(added.name)
    with pytest.raises(NoCredential):
        await other.pool_for("anybody")
    await other.register()
    assert [one.name for one in await other.list()] == [added.name]


@pytest.mark.every_server
async def test_rotating_the_key_reencrypts_every_row(harness: CredentialHarness):
    first = await harness.book.add_token(harness.token(0))
    second = await harness.book.add_token(harness.token(1))
    early = harness.again().book
    before = await harness.rows("SELECT secret, key_id FROM credentials")

    done = await harness.book.rotate_key()

    after = await harness.rows("SELECT secret, key_id FROM credentials")
    assert done.encrypted_anew == 2
    assert {row.key_id for row in after} == {done.key_id}
    assert {row.secret for row in before}.isdisjoint({row.secret for row in after})
    assert await early.secret_of(first.allowance) == harness.token(0), "who has the old keys reads the new ones"
    await harness.book.rotate_key()
    assert await harness.again().book.secret_of(second.allowance) == harness.token(1)


async def test_environment_keys_are_rotated_by_their_order(small_harness: CredentialHarness):
    old, new = EncryptionKey.new(), EncryptionKey.new()
    first = small_harness.again(credentials_key=SecretStr(old.text))
    added = await first.book.add_token(small_harness.token())

    both = small_harness.again(credentials_key=SecretStr(f"{new.text},{old.text}"))
    done = await both.book.rotate_key()

    assert (done.key_id, done.encrypted_anew, done.place) == (new.id, 1, "TIDEGATE_CREDENTIALS_KEY")
    alone = small_harness.again(credentials_key=SecretStr(new.text))
    assert await alone.book.secret_of(added.allowance) == small_harness.token()


def test_a_credential_object_has_no_field_for_a_secret():
    assert not {"secret", "sealed", "token", "fingerprint", "key_id"} & set(Credential.__struct_fields__)
