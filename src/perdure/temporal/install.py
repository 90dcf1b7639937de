"""Putting our bridge where the official SDK looks for its compiled core.

The SDK reaches its core through one extension module, `temporalio.bridge.temporal_sdk_bridge`.
`install()` puts a module of the same surface into `sys.modules` and on the package, so the
compiled file is never loaded; it need not even exist.

Invariants: installing twice changes nothing, also when a workflow sandbox runs this module again
(the sandbox shares `temporalio.bridge` with the program, so the attribute there is the truth).
Nothing heavy is imported at the top, because a sandboxed workflow file may import this package, and
nothing that `build_module` imports may import temporalio at its top.
"""

from __future__ import annotations

import importlib.util
import sys

from perdure.temporal.errors import InstalledTooLate, PackageMissing

__all__ = ["install", "installed"]

_NAME = "temporalio.bridge.temporal_sdk_bridge"
_MARK = "__perdure_core__"


def installed() -> bool:
    """Whether the official SDK in this process runs on our core."""
    package = sys.modules.get("temporalio.bridge")
    return hasattr(getattr(package, "temporal_sdk_bridge", None), _MARK)


def install() -> None:
    """Make the official SDK use our core from its first import on.

    Raises `InstalledTooLate` if the compiled core is loaded already, and `PackageMissing` without
    the packages of the extra `temporal`.
    """
    if installed():
        return
    if _NAME in sys.modules:
        raise InstalledTooLate
    for package in ("temporalio", "grpc"):
        if importlib.util.find_spec(package) is None:
            raise PackageMissing("perdure.temporal", package)
    from perdure.temporal.bridge import build_module

    module = build_module(_NAME)
    setattr(module, _MARK, True)
    # Importing any part of temporalio imports the bridge, so ours has to be there before.
    sys.modules[_NAME] = module
    sys.modules[f"{_NAME}.envconfig"] = module.envconfig
    import temporalio.bridge

    temporalio.bridge.temporal_sdk_bridge = module
