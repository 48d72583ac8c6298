"""A server that speaks SQS, in a process of its own."""

from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any
from uuid import uuid4

import boto3

from tests.servers.moto import ACCESS_KEY, REGION, SECRET_KEY, moto_server
from tests.servers.registry import record_used

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What the SDK's own chain finds."""


class SqsServer:
    """Where it is, and what its queues hold, seen from outside."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        self._client: Any = boto3.client(
            "sqs",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )

    def make_queue(self) -> str:
        """A new queue, and its address."""
        return self._client.create_queue(QueueName=f"queue-{uuid4().hex}")["QueueUrl"]

    def put(self, url: str, *bodies: str) -> None:
        """Send messages."""
        for body in bodies:
            self._client.send_message(QueueUrl=url, MessageBody=body)

    def purge(self, url: str) -> None:
        """Lose everything."""
        self._client.purge_queue(QueueUrl=url)

    def held(self, url: str) -> tuple[int, int]:
        """How many messages it would show, and how many it hides."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        told = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return int(told[names[0]]), int(told[names[1]])

    def close(self) -> None:
        """Close the connections of whoever looked."""
        self._client.close()


@contextmanager
def sqs_server() -> Generator[SqsServer]:
    """Runs for the length of a block."""
    with moto_server() as port:
        server = SqsServer(port)
        record_used("SQS (moto)", version("moto"))
        yield server
        server.close()
