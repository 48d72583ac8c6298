"""A process that uses the embedded server until its standard input ends, or until it is killed.

    python -m tests.storage.valkey.user_of_embedded DATA_DIR

Prints the pid of the server it uses.
"""

import asyncio
import sys
from pathlib import Path

from tidegate.storage.valkey.connection import connected
from tidegate.storage.valkey.embedded import EmbeddedServer


async def main(data_dir: Path) -> None:
    async with await EmbeddedServer.start(data_dir) as server:
        async with connected(server.url) as valkey:
            info = await valkey.execute("INFO", "server")
        print(info["process_id"], flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
