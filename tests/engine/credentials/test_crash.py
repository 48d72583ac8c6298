"""Whoever dies between SQL and the gate leaves something that the next leader puts right."""

import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.engine.credentials.office import Office
from tests.processes import start_warm
from tidegate.core.errors import NoCredential
from tidegate.engine.credentials import CredentialState


async def dies(office: Office, step: str) -> None:
    """Another process changes a credential, and is killed before it has told the gate."""
    url = office.parts.valkey.url
    process = await start_warm(
        *(
            sys.executable,
            "-m",
            "tests.engine.credentials.dying",
            step,
            str(office.settings.data_dir),
            url,
            office.sim.url,
        ),
        stdin=PIPE,
        cwd=Path(__file__).parents[2],
    )
    await process.communicate(office.token().encode())
    assert process.returncode == -signal.SIGKILL


async def test_a_credential_missing_in_the_gate_is_usable_after_the_next_start(small_office: Office):
    await dies(small_office, "add")
    added = await small_office.book.get("ours")
    assert (added.state, await small_office.members()) == (CredentialState.VALID, {})

    await small_office.book.enrol()

    assert await small_office.good_members() == [added.allowance]
    assert await small_office.book.secret_of(added.allowance) == small_office.token()


async def test_repeating_the_command_completes_an_interrupted_one(small_office: Office):
    await dies(small_office, "add")

    added = await small_office.book.add_token(small_office.token(), name="ours")

    assert await small_office.book.list() == [added]
    assert await small_office.good_members() == [added.allowance]


async def test_a_removed_credential_that_is_still_in_the_gate_is_not_used(small_office: Office):
    added = await small_office.book.add_token(small_office.token(), name="ours")
    await dies(small_office, "remove")
    assert await small_office.good_members() == [added.allowance]

    with pytest.raises(NoCredential):
        await small_office.again().book.secret_of(added.allowance)
    await small_office.book.enrol()

    assert await small_office.members() == {}
