"""Adapters for AWS (extra `aws`): triggers from SQS, and SQS as the way of jobs to their workers."""

from tidegate.aws.opening import Aws, open_aws
from tidegate.aws.settings import AwsSettings

__all__ = ["Aws", "AwsSettings", "open_aws"]
