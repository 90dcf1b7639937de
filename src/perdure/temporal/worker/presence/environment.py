"""What kind of machine a worker runs on, as it tells the server once."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from temporalio.api.worker.v1 import EnvironmentInfo

__all__ = ["environment"]

_Hosting = EnvironmentInfo.HostingEnvironment
_Linux = EnvironmentInfo.LinuxPlatform
_Runtime = EnvironmentInfo.Runtime

_SIGNS: Final = (
    ("KUBERNETES_SERVICE_HOST", _Hosting.HOSTING_ENVIRONMENT_TYPE_K8S),
    ("AWS_LAMBDA_FUNCTION_NAME", _Hosting.HOSTING_ENVIRONMENT_TYPE_AWS_LAMBDA),
    ("ECS_CONTAINER_METADATA_URI_V4", _Hosting.HOSTING_ENVIRONMENT_TYPE_AWS_ECS),
    ("K_SERVICE", _Hosting.HOSTING_ENVIRONMENT_TYPE_GOOGLE_CLOUD_RUN),
    ("GAE_SERVICE", _Hosting.HOSTING_ENVIRONMENT_TYPE_GOOGLE_APP_ENGINE),
    ("FUNCTIONS_WORKER_RUNTIME", _Hosting.HOSTING_ENVIRONMENT_TYPE_AZURE_FUNCTIONS),
    ("CONTAINER_APP_NAME", _Hosting.HOSTING_ENVIRONMENT_TYPE_AZURE_CONTAINER_APPS),
    ("WEBSITE_SITE_NAME", _Hosting.HOSTING_ENVIRONMENT_TYPE_AZURE_APP_SERVICE),
)
"""Variables that hosts set for what they run."""

_ARCHITECTURES: Final = {
    "x86_64": EnvironmentInfo.ARCHITECTURE_AMD64,
    "amd64": EnvironmentInfo.ARCHITECTURE_AMD64,
    "aarch64": EnvironmentInfo.ARCHITECTURE_ARM64,
    "arm64": EnvironmentInfo.ARCHITECTURE_ARM64,
}
_LIBC: Final = {"glibc": _Linux.LIBC_GLIBC, "musl": _Linux.LIBC_MUSL}
_DOCKER: Final = Path("/.dockerenv")


def environment(
    variables: Mapping[str, str] = os.environ, docker: Path = _DOCKER
) -> EnvironmentInfo:
    """What is known of the runtime, the host and the platform."""
    info = EnvironmentInfo(
        runtimes=[
            _Runtime(type=_Runtime.RUNTIME_TYPE_CPYTHON, version=platform.python_version())
            for implementation in [platform.python_implementation()]
            if implementation == "CPython"
        ]
    )
    if docker.exists():
        info.hosting_environments.add(type=_Hosting.HOSTING_ENVIRONMENT_TYPE_DOCKER)
    for variable, kind in _SIGNS:
        if variables.get(variable):
            info.hosting_environments.add(type=kind)
    _describe_platform(info.platform)
    return info


def _describe_platform(info: EnvironmentInfo.Platform) -> None:
    architecture = _ARCHITECTURES.get(
        platform.machine().lower(), EnvironmentInfo.ARCHITECTURE_UNSPECIFIED
    )
    system = platform.system()
    if system == "Linux":
        info.linux.version = _distribution()
        info.linux.architecture = architecture
        info.linux.libc = _LIBC.get(platform.libc_ver()[0], _Linux.LIBC_UNSPECIFIED)
    elif system == "Darwin":
        info.macos.version = platform.mac_ver()[0]
        info.macos.architecture = architecture
    elif system == "Windows":
        info.windows.version = platform.version()
        info.windows.architecture = architecture


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("VERSION_ID", "")
    except OSError:
        return platform.release()
