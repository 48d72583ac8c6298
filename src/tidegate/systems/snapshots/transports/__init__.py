"""Transports of refresh events: Redis Streams (default) and Kafka."""
