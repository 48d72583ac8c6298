"""A request leaves only with the gate's fresh word that its credential need not rest and its permit is not too old."""

import asyncio

import pytest

from tests.primitives.gate.harness import GROUP, PLENTY, GateHarness, job, jobs
from tidegate.core.errors import ContractBroken, GrantVoid
from tidegate.primitives.gate import (
    Admitted,
    Clearances,
    CredentialLimits,
    Gate,
    GatePermit,
    PermitWithdrawn,
    settlement,
)
from tidegate.primitives.gate.clearance import FRESH_MS

SEND_WITHIN_MS = 2_000


class Stopwatch:
    def __init__(self) -> None:
        self.now_ms = 1_000.0

    def __call__(self) -> float:
        return self.now_ms


async def dispatched(
    harness: GateHarness, count: int = 1, limits: CredentialLimits = PLENTY, **changes: object
) -> list[Admitted]:
    await harness.register(limits=limits)
    await harness.set_allowance(limit=1_000)
    await harness.gate.enqueue(jobs(count))
    return await harness.admitted()


# What the gate says


async def test_a_fresh_permit_is_valid(harness: GateHarness):
    assert await harness.gate.confirm(await dispatched(harness, 3)) == [None] * 3
    assert await harness.gate.confirm([]) == []


async def test_a_permit_has_a_deadline_for_sending_its_request(harness: GateHarness):
    (one,) = await dispatched(harness)
    assert one.by == harness.clock.pinned_ms + SEND_WITHIN_MS


async def test_no_request_is_sent_while_its_credential_is_blocked(harness: GateHarness):
    first, second = await dispatched(harness, 2)
    await harness.gate.report(settlement(first, blocked_ms=7_000))
    assert await harness.gate.confirm([second]) == [7_000]
    harness.advance(seconds=7)
    assert await harness.gate.confirm([second]) == [None]


async def test_a_block_of_one_bucket_holds_back_only_requests_of_that_bucket(harness: GateHarness):
    first, second = await dispatched(harness, 2)
    await harness.gate.enqueue([job("other", bucket="search")])
    (other,) = await harness.admitted()
    await harness.gate.report(settlement(first, blocked_ms=7_000, rests_bucket=True))
    assert await harness.gate.confirm([second, other]) == [7_000, None]


async def test_a_pause_of_the_host_holds_back_all_credentials(harness: GateHarness):
    first, second = await dispatched(harness, 2)
    await harness.gate.report(settlement(first, pause_ms=9_000))
    assert await harness.gate.confirm([second]) == [9_000]


async def test_a_retired_credential_sends_no_request(harness: GateHarness):
    first, second = await dispatched(harness, 2)
    await harness.settle([settlement(first, retired=True)])
    assert await harness.gate.confirm([second]) == [0]


async def test_an_expired_permit_is_replaced_and_counts_as_another_call(harness: GateHarness):
    out = await dispatched(harness, 4, PLENTY.model_copy(update={"per_minute": 8}))
    harness.advance(milliseconds=SEND_WITHIN_MS + 1)
    assert await harness.gate.confirm(out) == [None, None, None, 0], "the probe, four calls, and three of them again"
    harness.advance(seconds=68)
    assert await harness.gate.confirm(out[3:]) == [None]


async def test_a_permit_that_passed_to_another_worker_is_not_used_by_the_first(harness: GateHarness):
    """A process that was suspended for longer than its lease goes on where it stood."""
    (one,) = await dispatched(harness)
    harness.advance(seconds=30)
    await harness.take_over()
    (again,) = await harness.admitted()
    assert await harness.gate.confirm([one]) == [0]
    assert await harness.gate.confirm([again]) == [None]


async def test_a_server_that_lost_its_data_confirms_no_permit(harness: GateHarness):
    out = await dispatched(harness)
    await harness.valkey.execute(
        "DEL", *(harness.unit.key(f"gate:{name}") for name in ("credentials", "permits", "pools"))
    )
    assert await harness.gate.confirm(out) == [0]


# What the process makes of it


@pytest.fixture
def stopwatch() -> Stopwatch:
    return Stopwatch()


@pytest.fixture
def clearances(harness: GateHarness, stopwatch: Stopwatch) -> Clearances:
    return Clearances(harness.gate, stopwatch)


def usable(permit: GatePermit) -> bool:
    try:
        permit.use()
    except GrantVoid:
        return False
    return True


async def test_a_batch_is_cleared_with_one_request_for_a_short_time(
    harness: GateHarness, clearances: Clearances, stopwatch: Stopwatch
):
    first, second, third = await dispatched(harness, 3)
    await clearances.clear([first, second])
    permits = [clearances.permit(one) for one in (first, second, third)]
    stopwatch.now_ms += FRESH_MS
    assert [usable(permit) for permit in permits] == [True, True, False]
    with pytest.raises(ContractBroken, match="used already"):
        permits[0].use()


async def test_a_delayed_process_asks_again(harness: GateHarness, clearances: Clearances, stopwatch: Stopwatch):
    first, second = await dispatched(harness, 2)
    await clearances.clear([first, second])
    permit = clearances.permit(second)
    other = Gate(
        harness.valkey, harness.unit, stream=harness.stream, group=GROUP, wake=harness.wake, clock=harness.clock
    )
    await other.report(settlement(first, blocked_ms=7_000))

    stopwatch.now_ms += 300
    with pytest.raises(GrantVoid, match="clearance of this permit has expired"):
        permit.use()
    with pytest.raises(PermitWithdrawn, match="is blocked"):
        await permit.confirm()
    with pytest.raises(PermitWithdrawn, match="blocked for another 7000 ms"):
        permit.use()


async def test_blocks_reported_by_this_process_apply_immediately(harness: GateHarness, clearances: Clearances):
    first, second = await dispatched(harness, 2)
    await clearances.clear([first, second])
    permits = [clearances.permit(one) for one in (first, second)]
    permits[0].use()
    reporting = asyncio.create_task(clearances.report(settlement(first, blocked_ms=7_000)))
    await asyncio.sleep(0)
    with pytest.raises(PermitWithdrawn, match="is blocked"):
        permits[1].use()
    told = await reporting
    assert told is not None
    assert told.learned is not None


async def test_concurrent_clearance_requests_are_combined(
    harness: GateHarness, clearances: Clearances, monkeypatch: pytest.MonkeyPatch
):
    questions = list[int]()
    confirm = harness.gate.confirm

    async def counted(admitted: list[Admitted]) -> list[int | None]:
        questions.append(len(admitted))
        return await confirm(admitted)

    monkeypatch.setattr(harness.gate, "confirm", counted)
    permits = [clearances.permit(one) for one in await dispatched(harness, 50)]
    await asyncio.gather(*(permit.confirm() for permit in permits))
    assert questions == [50]
    assert all(usable(permit) for permit in permits)
