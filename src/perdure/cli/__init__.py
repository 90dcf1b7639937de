"""The `perdure` command: run workers, look at workflows, act on them.

Commands on a store go through the process that owns it, if there is one; see `reach`. What they
print on standard output is the answer and nothing else; remarks go to standard error. Exit codes
are in `exits`.
"""

from perdure.cli.main import main

__all__ = ["main"]
