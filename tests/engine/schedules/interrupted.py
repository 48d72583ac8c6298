"""A leader that stops in the middle of what is due: `-m tests.engine.schedules.interrupted URL VALKEY_URL MOMENT`."""

import asyncio
import sys
from typing import Any

from tests.engine.schedules.harness import DAY, SOURCES, pool_for
from tidegate.connections import build_context
from tidegate.core.clock import ManualClock
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.schedules import due as due_schedules
from tidegate.engine.schedules.due import DueSchedules
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey


async def main(url: str, valkey_url: str, moment: str) -> None:
    clock = ManualClock()
    clock.advance(DAY)
    valkey = await Valkey.connect(valkey_url)
    async with await Database.open(url, clock=clock) as database:
        offer = Orchestrator(database, build_context(Settings(), valkey, database).gate, SOURCES).offer

        def stop(*_: Any) -> Any:
            print(moment, flush=True)
            sys.stdin.read()

        if moment == "before offer":
            offer = stop
        else:
            plan = due_schedules._set_next_time  # pyright: ignore[reportPrivateUsage]

            def plan_and_stop(*arguments: Any) -> None:
                plan(*arguments)
                stop()

            due_schedules._set_next_time = plan_and_stop  # pyright: ignore[reportPrivateUsage]
        await DueSchedules(database, SOURCES, pool_for=pool_for, offer=offer, on_unknown_outcome=lambda: None).fire()


asyncio.run(main(*sys.argv[1:4]))
