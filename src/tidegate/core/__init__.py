"""Shared value types, errors, clocks and telemetry, without connections to servers."""
