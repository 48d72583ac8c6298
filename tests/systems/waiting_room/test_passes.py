"""A pass cannot be made up, changed, or used for anybody or anything else."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.systems.waiting_room.harness import KEY, ROOM, RoomHarness, add_visitors
from tidegate.core.clock import ManualClock, to_ms
from tidegate.core.errors import InvalidArgument
from tidegate.systems.waiting_room import NotActive, PassRefused, PassSigner
from tidegate.systems.waiting_room.passes import VisitorPass

NOW = ManualClock().now()
SAID = VisitorPass("waiting", ROOM, "a line", "ada", to_ms(NOW) + 1000, -5, None)
TOKEN = PassSigner([KEY]).issue(SAID)


def test_the_contents_of_a_pass_can_be_read_until_it_expires():
    signer = PassSigner([KEY])

    assert signer.read(TOKEN, room=ROOM, now=NOW + timedelta(milliseconds=999)) == SAID
    with pytest.raises(PassRefused, match="over"):
        signer.read(TOKEN, room=ROOM, now=NOW + timedelta(seconds=1))


def test_a_pass_is_refused_for_another_room_or_key():
    with pytest.raises(PassRefused, match="another room"):
        PassSigner([KEY]).read(TOKEN, room="other", now=NOW)
    with pytest.raises(PassRefused, match="not signed here"):
        PassSigner([b"another key, just as long: 32 b."]).read(TOKEN, room=ROOM, now=NOW)


def test_a_replaced_key_still_verifies_its_signatures():
    assert PassSigner([b"a new key that signs from now on", KEY]).read(TOKEN, room=ROOM, now=NOW) == SAID


@given(at=st.integers(0, len(TOKEN) - 1), character=st.sampled_from("ABCxyz019-_.=+/ \0é"))
def test_a_pass_with_any_changed_character_is_refused(at: int, character: str):
    changed = TOKEN[:at] + character + TOKEN[at + 1 :]
    if changed != TOKEN:
        with pytest.raises(PassRefused):
            PassSigner([KEY]).read(changed, room=ROOM, now=NOW)


@pytest.mark.parametrize("token", ["", ".", "x", TOKEN + "A", TOKEN + ".", "a" * 5000, TOKEN.partition(".")[0]])
def test_malformed_passes_are_refused(token: str):
    with pytest.raises(PassRefused):
        PassSigner([KEY]).read(token, room=ROOM, now=NOW)


@pytest.mark.parametrize("keys", [[], [b"short"]])
def test_a_weak_key_is_refused(keys: list[bytes]):
    with pytest.raises(InvalidArgument):
        PassSigner(keys)


async def test_a_pass_for_the_line_is_not_accepted_as_an_admission(harness: RoomHarness):
    room = await harness.open()
    waiting, _ = await add_visitors(room, "ada", "bob")
    await harness.run_worker()

    with pytest.raises(NotActive):
        await room.check(waiting)
    with pytest.raises(NotActive):
        await room.renew(waiting)
    entered = (await room.status(waiting)).token or ""
    assert (await room.check(entered)).user == "ada"


async def test_a_pass_for_the_line_is_valid_as_long_as_the_place_is_kept_without_heartbeat(harness: RoomHarness):
    room = await harness.open(capacity=0, abandon_after=timedelta(seconds=60))
    (first,) = await add_visitors(room, "ada")
    harness.clock.advance(timedelta(seconds=59))
    second = (await room.status(first)).token or ""
    harness.clock.advance(timedelta(seconds=59))

    with pytest.raises(PassRefused):
        await room.status(first)
    assert (await room.status(second)).user == "ada"
