"""The demo's program: an index of Python's own standard library, made by durable workflows.

`source` knows files and nothing of workflows; `workflows` is the program; `worker` is the process
that runs it and gets killed; `proof` checks afterwards that the kills left no mark; `screen` shows
what happens. `examples/demo.py` tells the story.
"""
