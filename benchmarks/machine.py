# mypy: disable-error-code="import-untyped"
"""Says on what the figures were taken: without it no absolute figure means anything."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import psutil

__all__ = ["describe_machine"]


def describe_machine(folder: Path) -> dict[str, str]:
    """Facts about the machine, the disk that holds `folder`, and the libraries."""
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "file system": _file_system(folder),
        "load average": f"{load} (anything else running makes the figures worse)",
        "rocksdict": version("rocksdict"),
        "perdure": version("perdure"),
    }


def _file_system(folder: Path) -> str:
    mounts = [
        partition
        for partition in psutil.disk_partitions(all=True)
        if folder.resolve().is_relative_to(partition.mountpoint)
    ]
    return max(mounts, key=lambda mount: len(mount.mountpoint)).fstype if mounts else "unknown"
