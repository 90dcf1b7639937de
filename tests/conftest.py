"""The official Temporal SDK of this test run uses our core.

Any import of `temporalio` loads its core, so ours must be in place before the first test module is
collected. Tests that compare with the compiled core start a process of their own.
"""

from perdure.temporal import install

install()
