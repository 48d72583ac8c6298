"""Kafka as the transport of refresh events. Needs the extra `kafka`."""
