"""Keeping our own modules out of the workflow sandbox.

The official sandbox runs imports of a workflow file again, in isolation. A file that imports
`perdure.temporal` (to install it) would so get a second copy of the core; passing our package
through, like the SDK passes itself through, prevents that.
"""

from __future__ import annotations

import sys

__all__ = ["pass_through"]


def pass_through() -> None:
    """Add our package to the sandbox's shared modules; nothing if the sandbox is not loaded."""
    sandbox = sys.modules.get("temporalio.worker.workflow_sandbox")
    if sandbox is None:
        return
    restrictions = sandbox.SandboxRestrictions
    for modules in (
        restrictions.passthrough_modules_minimum,
        restrictions.passthrough_modules_with_temporal,
        restrictions.passthrough_modules_maximum,
        restrictions.passthrough_modules_default,
        restrictions.default.passthrough_modules,
    ):
        modules.update({"perdure", "grpc"})
