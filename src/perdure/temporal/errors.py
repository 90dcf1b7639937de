"""Errors of the Temporal bridge that are ours.

Faults the official SDK knows (`RPCError`, `PollShutdownError`, plain `ValueError` and
`RuntimeError` with agreed texts) are raised as it expects them; what is here has no counterpart.
"""

from __future__ import annotations

from perdure.errors import CallerError, WorldError

__all__ = [
    "ForkedWithGrpc",
    "InstalledTooLate",
    "PackageMissing",
    "RecordFolderUnusable",
    "ServerBinaryMissing",
]


class ForkedWithGrpc(CallerError):
    """This process is a fork of `pid`, which had used gRPC already."""

    code = "temporal.forked_with_grpc"

    def __init__(self, pid: int) -> None:
        super().__init__(
            f"process {pid} had used gRPC before it was forked, and gRPC does not work in the "
            "copy: fork before the first client connects, or start the process with the method "
            "'spawn' or 'forkserver'"
        )
        self.pid = pid


class InstalledTooLate(CallerError):
    """The compiled core is already loaded, and parts of the SDK hold references to it."""

    code = "temporal.installed_too_late"

    def __init__(self) -> None:
        super().__init__(
            "the compiled core of temporalio is already imported: call perdure.temporal.install() "
            "before the first import of any part of temporalio (also by other modules), or run the "
            "program with `python -m perdure.temporal`, tests with `pytest -p "
            "perdure.temporal.pytest_plugin`"
        )


class PackageMissing(WorldError):
    """`what` needs the Python package `package` of the extra `extra`, which is not installed."""

    code = "temporal.package_missing"

    def __init__(self, what: str, package: str, extra: str = "temporal") -> None:
        super().__init__(
            f"{what} needs the package {package}, which is not installed: "
            f"pip install 'perdure[{extra}]'"
        )
        self.what = what
        self.package = package
        self.extra = extra


class RecordFolderUnusable(WorldError):
    """Inputs are to be recorded in `folder`, which cannot be made or written to."""

    code = "temporal.record_folder_unusable"

    def __init__(self, folder: str, cause: str) -> None:
        super().__init__(
            f"PERDURE_RECORD names the folder {folder!r}, which cannot be used ({cause}): "
            "name one that this process may write to, or unset the variable"
        )
        self.folder = folder
        self.cause = cause


class ServerBinaryMissing(WorldError, RuntimeError):
    """No executable of an ephemeral server was found; `tried` are the places looked at."""

    code = "temporal.server_binary_missing"

    def __init__(self, name: str, tried: list[str], advice: str) -> None:
        super().__init__(f"no executable {name!r} found in {', '.join(tried)}: {advice}")
        self.name = name
        self.tried = tried
        self.advice = advice
