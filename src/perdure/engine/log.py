"""Structured logs of the engine and of workflow code.

If the application has configured structlog, its configuration is used. If not, lines go to the
standard `logging` tree under `perdure`, because a library must not print by itself.

**Silence on replay.** Workflow code is run again from the start after every sleep. A line it logs
must appear once, so `WorkflowLogger` asks before each line whether the code is replaying recorded
steps and says nothing while it is. Every line carries the workflow's name, its id, its ray and the
location reached. Nothing is built before the first line is really written: most runs log nothing.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import structlog
from structlog.typing import EventDict, FilteringBoundLogger

from perdure.ids import Id

__all__ = ["WorkflowLogger", "engine_logger"]


def engine_logger(name: str = "perdure", **bound: Any) -> FilteringBoundLogger:
    """A logger called `name` with `bound` values on every line.

    Asks for structlog's configuration now: get loggers when the engine starts, not on import.
    """
    logger: FilteringBoundLogger
    if structlog.is_configured():
        logger = structlog.get_logger(name).bind(logger=name, **bound)
        return logger
    logger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, _plain_line],
        wrapper_class=structlog.stdlib.BoundLogger,
        **bound,
    )
    return logger


def _plain_line(
    _logger: object, _method: str, event: EventDict
) -> tuple[tuple[str], dict[str, Any]]:
    """`event key=value ...` for the standard library, which adds the traceback itself."""
    text = str(event.pop("event", ""))
    failure = event.pop("exc_info", None)
    pairs = "".join(f" {key}={value!r}" for key, value in event.items())
    return (f"{text}{pairs}",), {"exc_info": failure}


class WorkflowLogger:
    """What workflow code gets as `ctx.log`: bound to its run, silent while the run replays.

    `replaying` and `location` are asked per line; `location` gives the text form.
    """

    __slots__ = ("_location", "_logger", "_name", "_ray_id", "_replaying", "_values", "_workflow")

    def __init__(
        self,
        name: str,
        workflow_id: Id,
        ray_id: Id,
        *,
        replaying: Callable[[], bool],
        location: Callable[[], str],
    ) -> None:
        self._name = name
        self._workflow = workflow_id
        self._ray_id = ray_id
        self._replaying = replaying
        self._location = location
        self._values: dict[str, Any] = {}
        self._logger: FilteringBoundLogger | None = None

    def bind(self, **values: Any) -> WorkflowLogger:
        """A logger that adds `values` to every line."""
        bound = WorkflowLogger(
            self._name,
            self._workflow,
            self._ray_id,
            replaying=self._replaying,
            location=self._location,
        )
        bound._values = {**self._values, **values}
        return bound

    def debug(self, event: str, **values: Any) -> None:
        """Log at level debug, unless replaying."""
        self._write("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        """Log at level info, unless replaying."""
        self._write("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Log at level warning, unless replaying."""
        self._write("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        """Log at level error, unless replaying."""
        self._write("error", event, values)

    def exception(self, event: str, **values: Any) -> None:
        """Log at level error with the exception being handled, unless replaying."""
        self._write("error", event, {**values, "exc_info": sys.exc_info()})

    def _write(self, level: str, event: str, values: dict[str, Any]) -> None:
        if self._replaying():
            return
        if self._logger is None:
            self._logger = engine_logger(
                "perdure.workflow",
                workflow=self._name,
                workflow_id=str(self._workflow),
                ray_id=str(self._ray_id),
                **self._values,
            )
        getattr(self._logger, level)(event, location=self._location(), **values)
