"""The shop with its crowd, as `make ticketing` starts it."""

import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.processes import start_warm

ROOT = Path(__file__).parents[2]
SMALL = "--once --port 0 --people 20 --seats 4 --inside 3 --hold 2 --think 0.1"


@pytest.mark.full
async def test_buyers_that_know_only_the_url_buy_everything_once():
    process = await start_warm(
        sys.executable, "-m", "examples.ticketing", *SMALL.split(), stdout=PIPE, stderr=PIPE, cwd=ROOT
    )
    out, err = await process.communicate()

    assert (process.returncode, err) == (0, b""), out.decode()
    assert out.decode().splitlines()[-3:] == [
        "seats sold: 16",
        "seats sold twice: 0",
        "the ranking equals a recount: yes",
    ]
