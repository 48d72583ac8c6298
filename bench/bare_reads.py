"""A bare ASGI handler on uvicorn with httptools, with the snapshots of a server in memory: the ceiling of raw handlers.

`-m bench.bare_reads PORT PATH KEYS` reads all subjects from the server at this port, and prints its own port when it is
ready. It knows no keys of API callers, no request ids and no metrics, and sends two headers.
"""

import json
import socket
import sys
import urllib.request
from typing import Any

import uvicorn
import uvloop


def read_all(port: int, path: str, keys: int) -> dict[str, bytes]:
    """Return the body of each path."""
    found: dict[str, bytes] = {}
    for key in range(1, keys + 1):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}{key}", timeout=30) as answer:
            found[f"{path}{key}"] = answer.read()
    return found


async def main(port: int, path: str, keys: int) -> None:
    """Serve until the process is told to stop."""
    bodies = read_all(port, path, keys)

    async def handle(scope: Any, _receive: Any, send: Any) -> None:
        body = bodies[scope["path"]]
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(
        handle, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False
    )
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
        await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
