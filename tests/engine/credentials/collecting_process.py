"""`-m tests.engine.credentials.collecting_process DATA_DIR API_URL LOGIN`: one run, with the most detailed log."""

import asyncio
import os
import sys
from pathlib import Path

from tests.waiting import look_again
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.engine.source import Subject
from tidegate.settings import Settings
from tidegate.systems.github import GithubSettings
from tidegate.systems.github.opening import open_github


async def main(settings: Settings, login: str) -> None:
    async with open_github(settings, token=os.environ.get("GITHUB_TOKEN")) as collection:
        process = collection.process()
        running = asyncio.create_task(process.run())
        pool = await collection.credential_manager.pool_for(login)
        run_id = await collection.orchestrator.begin("github", Subject(user_id=login, login=login), pool=pool)
        while (run := await collection.orchestrator.show(run_id)).status in ACTIVE_RUNS:
            await look_again()
        print(run, await collection.parts.gate.status(pool), await collection.credential_manager.list())
        print(collection.credential_manager, vars(collection.credential_manager.secrets))
        print(metrics.exposition().decode())
        process.stop()
        await running


if __name__ == "__main__":
    configure_logs(level="debug")
    data_dir, api_url, login = sys.argv[1:]
    asyncio.run(main(Settings(data_dir=Path(data_dir), github=GithubSettings(api_url=api_url)), login))
