"""Simulated upstreams for the demo, the tests and the benchmarks, at least as strict as the real ones."""
