"""The waits of a campaign hold nobody to a time, and end where nothing moves."""

from itertools import count

import pytest
from chaos.progress import Stalled, until

from tidegate.core.errors import ValkeyUnavailable

NO_TIME_S = 0.01
"""Less than passes from one look to the next."""


async def test_a_wait_continues_while_there_is_progress():
    looks = count()
    at = iter(range(100))

    async def done() -> bool:
        return next(looks) == 3

    async def reached() -> int:
        return next(at)

    await until(done, "three steps are made", reached=reached, still_s=NO_TIME_S)

    assert next(at) == 3


@pytest.mark.parametrize("course", [(7, 7, 7), (7, 5, 6), (7, 6, 7)])
async def test_a_wait_ends_when_there_is_no_progress(course: tuple[int, ...]):
    """What goes round in a circle moves too, and never arrives."""
    at = iter(course)

    async def never() -> bool:
        return False

    async def reached() -> int:
        return next(at)

    with pytest.raises(Stalled, match=r"the room is empty: nothing moved for 0\.01 s, after 7"):
        await until(never, "the room is empty", reached=reached, still_s=NO_TIME_S)


async def test_an_unavailable_server_is_waited_for():
    looks = count()

    async def done() -> bool:
        if next(looks) < 2:
            raise ValkeyUnavailable("away")
        return True

    async def reached() -> int:
        raise AssertionError("it is done as soon as it is back")

    await until(done, "it is back", reached=reached)

    looks = count()
    with pytest.raises(Stalled):
        await until(done, "it is back", reached=reached, still_s=NO_TIME_S)
