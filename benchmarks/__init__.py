"""Measurements of perdure, of its floor, of the disk below it, and of a peer, in one run.

`python -m benchmarks` runs every measurement in a process of its own with a fresh data folder and
prints the figures and their ratios. Absolute figures depend on the machine and on what else runs
there; the ratios are what the project promises, so both sides of each ratio come from one run.

One module is one measurement: `raw` (the disk), `kv` (the store), `engine_steps`,
`engine_sleepers`, `engine_memory` (the engine) and `peer_dbos` (the same work on DBOS).
"""
