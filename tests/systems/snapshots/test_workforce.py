"""Whether a worker is running, as seen by a process that requests a refresh."""

from tests.systems.snapshots.deployment import Deployment
from tidegate.runtime.workforce import has_workers


async def test_a_live_process_that_reads_is_a_worker(deployment: Deployment):
    parts, streams = deployment.parts, deployment.snapshots.recoverable
    assert await has_workers(parts.membership, streams) is False, "nobody is there"

    await parts.membership.join()
    assert await has_workers(parts.membership, streams) is False, "somebody lives, and only answers"
    assert await has_workers(parts.membership, []) is True, "who reads from Kafka cannot be told from those who answer"

    await streams[0].consumer(parts.owner, "1").read(1, 0.01)
    assert await has_workers(parts.membership, streams) is True

    await parts.membership.leave()
    assert await has_workers(parts.membership, streams) is False, "what a dead process leaves behind is no worker"
