"""A server that speaks S3, in a process of its own."""

from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version
from urllib.request import Request, urlopen

from tests.servers.moto import ACCESS_KEY, REGION, SECRET_KEY, moto_server
from tests.servers.registry import record_used

BUCKET = "snapshots"


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
            "AWS_REGION": REGION,
        }


@contextmanager
def s3_server() -> Generator[S3Server]:
    """Runs for the length of a block; it has an empty bucket."""
    with moto_server() as port:
        server = S3Server(port)
        with urlopen(Request(f"{server.endpoint}/{BUCKET}", method="PUT")):
            record_used("S3 (moto)", version("moto"))
        yield server
