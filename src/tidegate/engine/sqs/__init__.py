"""Adapters for AWS (extra `aws`): triggers from SQS, and SQS as the transport of jobs to workers."""
