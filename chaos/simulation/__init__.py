"""A deterministic simulation of a fleet that no test machine can run: 100 workers, 10,000 credentials, seeded faults.

    python -m chaos.simulation --seed 1

Real: the gate (`primitives/gate`) and the stream (`primitives/stream`), with their Lua scripts on an embedded Valkey.
The scripts take their time as an argument, so they run on the virtual clock. Modelled: the upstream with its limits,
latencies, workers, leases, the leader's timekeeper, and SQL as a table of jobs with fencing tokens. Not modelled: lost
data of the server, networks, and CPU time; `make chaos` and `make bench ONLY=scaling` have these.
"""
