"""Whoever dies between SQL and the gate leaves something that the next leader puts right."""

import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.engine.credentials.harness import CredentialHarness
from tests.processes import start_warm
from tidegate.core.errors import NoCredential
from tidegate.engine.credentials import CredentialState


async def dies(harness: CredentialHarness, step: str) -> None:
    """Another process changes a credential, and is killed before it has told the gate."""
    url = harness.parts.valkey.url
    process = await start_warm(
        *(
            sys.executable,
            "-m",
            "tests.engine.credentials.killed_process",
            step,
            str(harness.settings.data_dir),
            url,
            harness.sim.url,
        ),
        stdin=PIPE,
        cwd=Path(__file__).parents[2],
    )
    await process.communicate(harness.token().encode())
    assert process.returncode == -signal.SIGKILL


async def test_a_credential_missing_in_the_gate_is_usable_after_the_next_start(small_harness: CredentialHarness):
    await dies(small_harness, "add")
    added = await small_harness.book.get("ours")
    assert (added.state, await small_harness.members()) == (CredentialState.VALID, {})

    await small_harness.book.register()

    assert await small_harness.good_members() == [added.allowance]
    assert await small_harness.book.secret_of(added.allowance) == small_harness.token()


async def test_repeating_the_command_completes_an_interrupted_one(small_harness: CredentialHarness):
    await dies(small_harness, "add")

    added = await small_harness.book.add_token(small_harness.token(), name="ours")

    assert await small_harness.book.list() == [added]
    assert await small_harness.good_members() == [added.allowance]


async def test_a_removed_credential_that_is_still_in_the_gate_is_not_used(small_harness: CredentialHarness):
    added = await small_harness.book.add_token(small_harness.token(), name="ours")
    await dies(small_harness, "remove")
    assert await small_harness.good_members() == [added.allowance]

    with pytest.raises(NoCredential):
        await small_harness.again().book.secret_of(added.allowance)
    await small_harness.book.register()

    assert await small_harness.members() == {}
