"""Errors of the worker core that concern one run.

Two things can go wrong inside the machines, and the difference decides what happens to the task:

* `NondeterminismError`: the workflow's code did something else than its history says. The task
  fails with cause NonDeterministicError; a deploy of the right code heals the run.
* `FatalError`: the history itself, or the protocol with lang, makes no sense. The run is dropped.

Both carry a text that names the event, the command that was expected and the one that was found.
"""

from __future__ import annotations

from perdure.errors import CallerError, PerdureError

__all__ = ["FatalError", "IllegalTransition", "MalformedCommand", "NondeterminismError"]


class NondeterminismError(CallerError):
    """The workflow's code does not do what the history says it did.

    `problem` is the text without the prefix that users search for.
    """

    code = "core.nondeterminism"

    def __init__(self, problem: str) -> None:
        super().__init__(f"[TMPRL1100] Nondeterminism error: {problem}")
        self.problem = problem


class FatalError(PerdureError):
    """The run cannot go on: its history or its bookkeeping contradicts itself."""

    code = "core.fatal"

    def __init__(self, problem: str) -> None:
        super().__init__(f"Fatal error in workflow machines: {problem}")
        self.problem = problem


class IllegalTransition(FatalError):
    """A machine got an event that its table does not have for its state."""

    code = "core.illegal_transition"

    def __init__(self, machine: str, state: str, event: str) -> None:
        super().__init__(f"the machine {machine} has no transition from {state} on {event}")
        self.machine = machine
        self.state = state
        self.event = event


class MalformedCommand(CallerError):
    """Lang sent a command that is no command: without a variant, or with a field missing."""

    code = "core.malformed_command"

    def __init__(self, problem: str) -> None:
        super().__init__(f"malformed command: {problem}")
        self.problem = problem
