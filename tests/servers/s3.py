"""A server that speaks S3, in a process of its own."""

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version
from urllib.request import Request, urlopen

from tests.servers.registry import record_used

BUCKET = "snapshots"
ACCESS_KEY, SECRET_KEY = "AKIATESTTESTTEST", "a-secret-that-must-not-be-seen"
_SERVE = """
import logging, sys
from werkzeug.serving import make_server
from moto.server import DomainDispatcherApplication, create_backend_app

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


class S3Server:
    """Where it is, and how to get in."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.url = f"s3://{BUCKET}/archive"

    @property
    def environment(self) -> dict[str, str]:
        """What obstore, and everybody else, expects in the environment."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
        }


@contextmanager
def s3_server() -> Generator[S3Server]:
    """Runs for the length of a block; it has an empty bucket."""
    command = [sys.executable, "-W", "ignore", "-c", _SERVE]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=os.environ | {"AWS_DEFAULT_REGION": "us-east-1"}
    ) as process:
        try:
            assert process.stdout is not None
            server = S3Server(int(process.stdout.readline()))
            with urlopen(Request(f"{server.endpoint}/{BUCKET}", method="PUT")):
                record_used("S3 (moto)", version("moto"))
            yield server
        finally:
            process.kill()


def refused_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
