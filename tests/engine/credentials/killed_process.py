"""`-m tests.engine.credentials.killed_process STEP DATA_DIR VALKEY_URL API_URL`: change a credential and exit at STEP.

The token comes on standard input.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from tidegate.engine.collection import open_credentials
from tidegate.primitives.gate import Gate
from tidegate.settings import Settings
from tidegate.systems.github import GithubSettings


async def die(*_: Any, **__: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


async def main(step: str, settings: Settings, token: str) -> None:
    async with open_credentials(settings, "github") as book:
        if step == "add":
            Gate.register = die
            await book.add_token(token, name="ours")
        if step == "remove":
            Gate.dismiss = die
            await book.remove("ours")


if __name__ == "__main__":
    step, data_dir, valkey_url, api_url = sys.argv[1:]
    github = GithubSettings(api_url=api_url)
    settings = Settings(data_dir=Path(data_dir), valkey_url=valkey_url, github=github)
    asyncio.run(main(step, settings, sys.stdin.read()))
