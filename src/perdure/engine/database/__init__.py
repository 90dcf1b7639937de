"""Every operation of the engine on its store, each one a named transaction.

All are plain async functions `(tx, keys, ...)`. Given a `Database` they run as a transaction of
their own, with retries; given a `Transaction` they take part in it. None looks at a clock or makes
an id: `now` (ms) and ids come from the caller, outside of the retried part.

Modules, from the bottom: `keys` and `rows` (what lies where, and what is in it), `gauges` (the
counters), `status`, `record`, `results`, `queues` (reading and writing single rows), `lease` and
`load` (taking a workflow), `steps` and `compaction` (its history), `dispatch`, `find`, `tags`,
`signals`, `finish` (the operations of runs and callers), `control`, `prune`, `inspect` (those of
people).
"""
