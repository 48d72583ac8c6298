"""moto: a server that speaks S3 and SQS, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

ACCESS_KEY, SECRET_KEY, REGION = "AKIATESTTESTTEST", "a-secret-that-must-not-be-seen", "us-east-1"
_SERVE = """
import logging, sys
from werkzeug.serving import make_server
from moto.server import DomainDispatcherApplication, create_backend_app

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def moto_server() -> Generator[int]:
    """Runs for the length of a block; its port."""
    command = [sys.executable, "-W", "ignore", "-c", _SERVE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"AWS_DEFAULT_REGION": REGION}) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()
