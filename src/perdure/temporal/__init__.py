"""The official `temporalio` SDK on a core written in Python.

Call `install()` before the first import of `temporalio.client` (or run a script with
`python -m perdure.temporal script.py`), and the unmodified official SDK uses this package where
it would use its compiled core. See docs/temporal.md and docs/temporal-compatibility.md.
"""

from perdure.temporal.install import install, installed

__all__ = ["install", "installed"]
