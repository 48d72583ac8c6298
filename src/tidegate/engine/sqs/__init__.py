"""Adapters for AWS (extra `aws`): triggers from SQS, and SQS as the transport of jobs to workers."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.engine.sqs.opening import Aws, open_aws
    from tidegate.engine.sqs.settings import AwsSettings

__all__ = ["Aws", "AwsSettings", "open_aws"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.engine.sqs.opening": "Aws open_aws",
        "tidegate.engine.sqs.settings": "AwsSettings",
    },
)
