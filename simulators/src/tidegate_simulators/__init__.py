"""Upstreams of our own, for the demo, the tests and the benchmarks. Never kinder than the real ones."""
