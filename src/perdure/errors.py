"""The root of every error perdure raises, and the few errors that all floors share.

Errors are split by whose fault they are, because that decides what to do about them:

* `CallerError`: the caller must change something (bad input, a limit, an unknown name). Retrying
  the same call fails the same way.
* `WorldError`: storage, network, or another process. The same call may succeed later.

Every class has a stable `code` (where it comes from and what happened, `kv.store_in_use`; safe to
match on and to store), typed fields, and a text that names the thing and the way out. Nobody should
ever parse the text.

Control flow (a workflow going to sleep, an eviction) is not an error: it derives from
`BaseException`, lives in the engine, and never reaches users.

Invariant: an error is rebuilt from its constructor arguments, so it survives pickling and copying.
A subclass therefore passes exactly its own arguments on: `super().__init__(message)` with the
fields as attributes is enough, as `PerdureError` remembers the arguments of the outermost call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

__all__ = [
    "CallerError",
    "InvalidName",
    "LimitExceeded",
    "PayloadError",
    "PerdureError",
    "WorldError",
]


class PerdureError(Exception):
    """Base of all errors of this package.

    `code` is stable across releases; `message` is the text for people.
    """

    code: ClassVar[str] = "perdure"
    message: str
    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls, *args)
        self._arguments = (args, kwargs)
        return self

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Callable[..., PerdureError], tuple[Any, ...], dict[str, Any]]:
        args, kwargs = self._arguments
        return _rebuild, (type(self), args, kwargs), dict(self.__dict__)


def _rebuild(
    cls: type[PerdureError], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> PerdureError:
    return cls(*args, **kwargs)


class CallerError(PerdureError):
    """The caller's fault: the same call will fail again until the caller changes something."""

    code = "caller"


class WorldError(PerdureError):
    """The world's fault (storage, network, another process): the same call may work later."""

    code = "world"


class LimitExceeded(CallerError):
    """Something is larger than it may be; `size` and `limit` are in the unit `what` implies."""

    code = "caller.limit_exceeded"

    def __init__(self, what: str, size: int, limit: int, advice: str = "") -> None:
        text = f"{what} is {size:,}, the limit is {limit:,}"
        super().__init__(f"{text}: {advice}" if advice else text)
        self.what = what
        self.size = size
        self.limit = limit


class PayloadError(CallerError):
    """A value cannot be stored, or stored bytes do not fit the expected type.

    `path` says where in the value, in the form `$.field[0]`; `$` is the value itself. `whole` says
    what the value is, where that is known: `signal "paid"`.
    """

    code = "caller.payload"

    def __init__(self, path: str, problem: str, whole: str = "") -> None:
        super().__init__(f"value at {path}{f' of {whole}' if whole else ''}: {problem}")
        self.path = path
        self.problem = problem
        self.whole = whole

    def of(self, whole: str) -> PayloadError:
        """Return the same error about a value that has a name."""
        return PayloadError(self.path, self.problem, whole)


class InvalidName(CallerError):
    """The name of a `kind` of thing (workflow, signal, subject...) breaks the `rule` for it."""

    code = "caller.invalid_name"

    def __init__(self, kind: str, name: str, rule: str) -> None:
        super().__init__(f"{name!r} is not a valid {kind} name: {rule}")
        self.kind = kind
        self.name = name
        self.rule = rule
