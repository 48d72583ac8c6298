"""The crowd campaign of `make chaos`, in small."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from chaos.crowd import CrowdPlan, conduct
from chaos.crowd_audit import Replay, Token, Verdict, check_order


@pytest.mark.crash
@pytest.mark.timeout(600)  # it gives up by itself, where nothing moves any more
async def test_every_visitor_is_admitted_once_and_in_order_when_processes_die(tmp_path: Path):
    """Processes are killed, Valkey is, too, comes back without its last moments, and once with nothing."""
    plan = CrowdPlan(
        people=400,
        joiners=2,
        admitters=2,
        capacity=150,
        database="sqlite",
        kill_every_s=0.5,
        valkey_every_s=0.7,
        power_failures=0.7,
        losses=1,
    )
    verdict = await conduct(plan, tmp_path)

    assert verdict.breaches == []
    assert 0 < verdict.most_inside <= verdict.capacity
    assert verdict.killed > 0
    assert verdict.valkey_lost == 1
    assert verdict.power_failures + verdict.valkey_killed > 1, "the last blow comes when all are gone"


def test_the_check_finds_every_overtaken_visitor_in_the_whole_history():
    """u10 was passed by eight and is long inside; u19 lost the place, came back and was passed by nobody."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    order = [*range(1, 10), *range(11, 19), 10, 20, 19]
    rows = [Token(f"u{place}", place, 10_000 + 100 * n, at, at) for n, place in enumerate(order)]
    since = {**dict.fromkeys((row.user for row in rows), 100), "u19": 10_000 + 100 * order.index(20)}
    verdict = Verdict(people=len(rows), capacity=len(rows))

    assert list(check_order(rows, since, verdict)) == ["1 were overtaken; u10 at 10 by 8"]
    assert (verdict.overtaken, verdict.most_passed) == (1, 8)
    assert list(check_order(rows[:9], since, Verdict())) == []


def test_a_join_after_an_admission_in_the_same_millisecond_is_not_overtaken():
    replay = Replay(Verdict())
    replay.read(
        [entry("7-0", "joined", ["b", 2]), entry("9-0", "entering", ["b", 2, 901]), entry("9-1", "joined", ["a", 1])]
    )

    assert list(check_order([token("b", 2, 901), token("a", 1, 1_001)], replay.present_since(), Verdict())) == []


def test_a_visitor_whose_join_was_lost_is_not_overtaken_by_earlier_admissions():
    """The first log was lost as a whole; of the second, the join of `a` was lost, but not the row of the admission."""
    replay = Replay(Verdict())
    replay.read([entry("1-0", "joined", ["a", 1])])
    replay.lost()
    joined, entered = entry("7-0", "joined", ["b", 2]), entry("8-0", "entering", ["b", 2, 801])
    replay.read_presence([joined, entered, entry("9-0", "joined", ["a", 1])])
    replay.read([joined, entered])

    rows = [token("b", 2, 801), token("a", 1, 1_001)]
    assert list(check_order(rows, replay.present_since(), Verdict())) == []
    assert list(check_order(rows, {"a": 100}, Verdict())) == ["1 were overtaken; a at 1 by 1"]


def entry(number: str, what: str, *users: list[Any]) -> tuple[bytes, Mapping[bytes, bytes]]:
    """A step of the log of a room, as the server returns it."""
    texts = [[str(part) for part in user] for user in users]
    fields = {"what": what, "users": msgspec.msgpack.encode(texts), "inside": "0", "capacity": "9"}
    return number.encode(), {
        name.encode(): value.encode() if isinstance(value, str) else value for name, value in fields.items()
    }


def token(user: str, place: int, admission: int) -> Token:
    """The row of an admission."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Token(user, place, admission, at, at)
