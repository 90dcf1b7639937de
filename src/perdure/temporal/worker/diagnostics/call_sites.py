"""Which line of workflow code asked for a command, remembered until the command reaches the core.

The protocol between SDK and core has no field for it, so the SDK's one method that makes commands
is wrapped: it notes the innermost frame that is neither the SDK's nor the standard library's. The
list of a completion is in the order of its commands, and is taken with the completion.

If a later SDK has no such method, or makes commands without it, errors merely lack the line.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Any, Final

import temporalio

from perdure.core.evidence import CallSite

__all__ = ["take", "watch"]

_METHOD: Final = "_add_command"
_OUTERMOST: Final = "_WorkflowInstanceImpl.activate"
_SDK: Final = str(Path(temporalio.__file__ or "").parent)
_LIBRARY: Final = sysconfig.get_path("stdlib")

_pending: dict[str, tuple[Any, list[CallSite | None]]] = {}
"""Run id, to the completion that lang works on and the lines of its commands so far."""

_is_machinery: dict[str, bool] = {}
"""File name to what `_is_machinery_file` said; the sandbox makes new code objects for every run."""


def watch() -> None:
    """Have the SDK's workflow instances note their lines; doing it again changes nothing."""
    from temporalio.worker import _workflow_instance

    instances = getattr(_workflow_instance, "_WorkflowInstanceImpl", None)
    original = getattr(instances, _METHOD, None)
    if original is None or hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def noted(self: Any) -> Any:
        command = original(self)
        completion = self._current_completion
        run_id = self._info.run_id
        entry = _pending.get(run_id)
        if entry is None or entry[0] is not completion:
            entry = _pending[run_id] = (completion, [])
        entry[1].append(_call_site(sys._getframe(1)))  # noqa: SLF001
        return command

    setattr(instances, _METHOD, noted)


def take(run_id: str, commands: int) -> tuple[CallSite | None, ...]:
    """The lines of the completion that has just come, one for each command, or none at all."""
    entry = _pending.pop(run_id, None)
    if entry is None or len(entry[1]) != commands:
        return ()
    return tuple(entry[1])


def _call_site(frame: FrameType | None) -> CallSite | None:
    while frame is not None:
        code = frame.f_code
        filename = code.co_filename
        machinery = _is_machinery.get(filename)
        if machinery is None:
            machinery = _is_machinery[filename] = _is_machinery_file(filename)
        if not machinery:
            return CallSite(filename, frame.f_lineno, code.co_qualname)
        if code.co_qualname == _OUTERMOST:
            return None
        frame = frame.f_back
    return None


def _is_machinery_file(filename: str) -> bool:
    if filename.startswith((_SDK, "<frozen ")):
        return True
    return filename.startswith(_LIBRARY) and "site-packages" not in filename
