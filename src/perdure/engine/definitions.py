"""What users define: workflows, activities, operations, signals and messages.

A definition is a typed object around a function or a type. Its name is what the store remembers,
so renaming a Python function needs `name=` with the old name. Type hints are read at first use,
not at import, so that forward references and slow annotations cost nothing at start.

Functions take `(ctx, input)` or only `(ctx)`; the second form has the input type None.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

from perdure.codec import Codec, codec_for
from perdure.engine.database import rows
from perdure.engine.errors import InvalidDefinition
from perdure.engine.retry import DEFAULT_RETRY, RetryPolicy
from perdure.errors import InvalidName, PayloadError

if TYPE_CHECKING:
    from perdure.engine.context import ActivityContext, OperationContext, WorkflowContext

__all__ = [
    "Activity",
    "Message",
    "Operation",
    "Prune",
    "Signal",
    "Workflow",
    "activity",
    "check_name",
    "message",
    "message_of",
    "operation",
    "require",
    "signal",
    "signal_in",
    "signal_of",
    "workflow",
]

I = TypeVar("I")  # noqa: E741 - input
O = TypeVar("O")  # noqa: E741 - output
O_co = TypeVar("O_co", covariant=True)
T = TypeVar("T")
C = TypeVar("C", bound=type)
D = TypeVar("D", bound="_Definition[Any, Any]")

Prune = Literal["all", "history", "none"]
_STORED_PRUNE = {
    "all": rows.Prune.ALL,
    "history": rows.Prune.HISTORY,
    "none": rows.Prune.NONE,
}

_NAME = re.compile(r"[a-z0-9_]{1,100}\Z")
_NAME_RULE = "1 to 100 characters out of a-z, 0-9 and _"
_SIGNAL_MARK = "__perdure_signal__"
_MESSAGE_MARK = "__perdure_message__"


def check_name(kind: str, name: str) -> str:
    """Return `name` if it may name a `kind` of definition. Raises `InvalidName`."""
    if not _NAME.match(name):
        raise InvalidName(kind, name[:200], _NAME_RULE)
    return name


class _Definition(Generic[I, O_co]):
    """A named function `(ctx, input) -> output` with codecs for both ends."""

    kind = "definition"

    def __init__(self, function: Callable[..., Any], name: str | None) -> None:
        self.function = function
        self.name = check_name(self.kind, function.__name__ if name is None else name)
        self.takes_input = self._takes_input()
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    def _takes_input(self) -> bool:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(self.function).parameters.values()
        required = [p for p in parameters if p.kind in kinds]
        if len(required) not in (1, 2) or len(required) != len(parameters):
            raise InvalidDefinition(self.kind, self.name, "it must take (ctx, input) or (ctx)")
        return len(required) == 2

    @cached_property
    def _hints(self) -> tuple[Any, Any]:
        hints = typing.get_type_hints(self.function, include_extras=True)
        parameters = list(inspect.signature(self.function).parameters)
        taken: Any = hints.get(parameters[1], Any) if self.takes_input else None
        return taken, hints.get("return", Any)

    @cached_property
    def input_codec(self) -> Codec[I]:
        """How the input is stored."""
        return cast("Codec[I]", codec_for(self._hints[0]))

    @cached_property
    def output_codec(self) -> Codec[O_co]:
        """How the output is stored."""
        return cast("Codec[O_co]", codec_for(self._hints[1]))

    def write_input(self, value: I) -> bytes:
        """Encode an input. Raises `PayloadError` also for one that could not be read back."""
        stored = self.input_codec.encode(value)
        self.read_input(stored)
        return stored

    def read_input(self, stored: bytes) -> I:
        """Decode an input. Raises `PayloadError`, and says whose input it is."""
        try:
            return self.input_codec.decode(stored)
        except PayloadError as error:
            raise error.of(f'the input of {self.kind} "{self.name}"') from error

    def read_output(self, stored: bytes) -> O_co:
        """Decode an output. Raises `PayloadError`, and says whose output it is."""
        try:
            return self.output_codec.decode(stored)
        except PayloadError as error:
            raise error.of(f'the output of {self.kind} "{self.name}"') from error

    def call(self, ctx: Any, input: Any) -> Any:
        """Call the function; async ones return a coroutine."""
        return self.function(ctx, input) if self.takes_input else self.function(ctx)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


def require(kind: type[D], value: object) -> None:
    """Check that a value is a definition of a kind. Raises `InvalidDefinition` if it is not."""
    if isinstance(value, kind):
        return
    if isinstance(value, _Definition):
        raise InvalidDefinition(kind.kind, value.name, f"it is the {value.kind} of that name")
    if not inspect.isfunction(value):
        raise InvalidDefinition(kind.kind, repr(value), "it is no function marked as one")
    raise InvalidDefinition(kind.kind, value.__name__, f"mark the function with @{kind.kind}")


def _require_async(definition: _Definition[Any, Any]) -> None:
    if not inspect.iscoroutinefunction(definition.function):
        raise InvalidDefinition(definition.kind, definition.name, "it must be an async function")


class Workflow(_Definition[I, O_co]):
    """A durable function: replayed from its history until it is done.

    `prune` says what pruning removes after completion: "all" of it, its "history" only, or "none".
    `keep_iterations` is how many finished loop iterations stay readable for people.
    """

    kind = "workflow"

    def __init__(
        self,
        function: Callable[..., Awaitable[O_co]],
        *,
        name: str | None = None,
        prune: Prune = "all",
        keep_iterations: int = 100,
    ) -> None:
        super().__init__(function, name)
        _require_async(self)
        if prune not in _STORED_PRUNE:
            raise InvalidDefinition(self.kind, self.name, "prune is 'all', 'history' or 'none'")
        self.stored_prune = _STORED_PRUNE[prune]
        self.keep_iterations = keep_iterations


class Activity(_Definition[I, O_co]):
    """A step that touches the world. Runs at least once, is recorded exactly once.

    A plain function runs in a thread; with `process=True` in a separate process (it must then be
    importable, and its context offers properties only).
    """

    kind = "activity"

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        retry: RetryPolicy = DEFAULT_RETRY,
        process: bool = False,
    ) -> None:
        super().__init__(function, name)
        self.retry = retry
        self.is_async = inspect.iscoroutinefunction(function)
        self.process = process
        if process and self.is_async:
            raise InvalidDefinition(self.kind, self.name, "process=True needs a plain function")


class Operation(_Definition[I, O_co]):
    """A plain async function with a time-out and metrics, callable outside workflow bodies."""

    kind = "operation"

    def __init__(
        self, function: Callable[..., Awaitable[O_co]], *, name: str | None, timeout: float | None
    ) -> None:
        super().__init__(function, name)
        _require_async(self)
        self.timeout = timeout


class _Named(Generic[T]):
    """A name with a body type."""

    kind = "signal"

    @overload
    def __init__(self, name: str, type_: type[T]) -> None: ...
    @overload
    def __init__(self, name: str, type_: Any) -> None: ...
    def __init__(self, name: str, type_: Any) -> None:
        self.name = check_name(self.kind, name)
        self.type = type_

    @cached_property
    def codec(self) -> Codec[T]:
        """How the body is stored."""
        return cast("Codec[T]", codec_for(self.type))

    def write(self, body: T) -> bytes:
        """Encode a body. Raises `PayloadError` also for one that could not be read back."""
        stored = self.codec.encode(body)
        self.read(stored)
        return stored

    def read(self, stored: bytes) -> T:
        """Decode a body. Raises `PayloadError`, and says what it is the body of."""
        try:
            return self.codec.decode(stored)
        except PayloadError as error:
            raise error.of(f'{self.kind} "{self.name}"') from error

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


class Signal(_Named[T]):
    """A durable message to one workflow: `Signal("paid", int)`, or `@signal` on a class."""

    kind = "signal"

    def __call__(self, body: T) -> SignalBody[T]:
        """Give a body its signal, for types that cannot carry the mark themselves."""
        return SignalBody(self, body)


class SignalBody(Generic[T]):
    """A value together with the signal it is sent as."""

    __slots__ = ("body", "signal")

    def __init__(self, signal: Signal[T], body: T) -> None:
        self.signal = signal
        self.body = body


class Message(_Named[T]):
    """An ephemeral publication on a topic: at most once, to whoever listens now."""

    kind = "message"

    def __call__(self, body: T) -> MessageBody[T]:
        """Give a body its message, for types that cannot carry the mark themselves."""
        return MessageBody(self, body)


class MessageBody(Generic[T]):
    """A value together with the message it is published as."""

    __slots__ = ("body", "message")

    def __init__(self, message: Message[T], body: T) -> None:
        self.message = message
        self.body = body


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@overload
def signal(cls: C, /) -> C: ...
@overload
def signal(*, name: str) -> Callable[[C], C]: ...
def signal(cls: C | None = None, /, *, name: str | None = None) -> C | Callable[[C], C]:
    """Make a class a signal type, named like the class in snake case unless `name` is given."""

    def mark(target: C) -> C:
        setattr(target, _SIGNAL_MARK, Signal(name or _snake(target.__name__), target))
        return target

    return mark if cls is None else mark(cls)


@overload
def message(cls: C, /) -> C: ...
@overload
def message(*, name: str) -> Callable[[C], C]: ...
def message(cls: C | None = None, /, *, name: str | None = None) -> C | Callable[[C], C]:
    """Make a class a message type, named like the class in snake case unless `name` is given."""

    def mark(target: C) -> C:
        setattr(target, _MESSAGE_MARK, Message(name or _snake(target.__name__), target))
        return target

    return mark if cls is None else mark(cls)


def signal_of(kind: type[T] | Signal[T]) -> Signal[T]:
    """Return the signal behind a type or a signal. Raises `InvalidDefinition`."""
    if isinstance(kind, Signal):
        return kind
    found = vars(kind).get(_SIGNAL_MARK)
    if found is None:
        raise InvalidDefinition("signal", kind.__name__, "mark the class with @signal")
    return cast("Signal[T]", found)


def signal_in(value: object) -> Signal[Any] | None:
    """The signal that a value is, or the one that a class was marked as."""
    found = vars(value).get(_SIGNAL_MARK) if isinstance(value, type) else value
    return found if isinstance(found, Signal) else None


def message_of(kind: type[T] | Message[T]) -> Message[T]:
    """Return the message behind a type or a message. Raises `InvalidDefinition`."""
    if isinstance(kind, Message):
        return kind
    found = vars(kind).get(_MESSAGE_MARK)
    if found is None:
        raise InvalidDefinition("message", kind.__name__, "mark the class with @message")
    return cast("Message[T]", found)


def signal_and_body(value: Any) -> tuple[Signal[Any], Any]:
    """Split what a user sends into its signal and its body. Raises `InvalidDefinition`."""
    if isinstance(value, SignalBody):
        return value.signal, value.body
    return signal_of(type(value)), value


def message_and_body(value: Any) -> tuple[Message[Any], Any]:
    """Split what a user publishes into its message and its body. Raises `InvalidDefinition`."""
    if isinstance(value, MessageBody):
        return value.message, value.body
    return message_of(type(value)), value


@overload
def workflow(function: Callable[[WorkflowContext, I], Awaitable[O]], /) -> Workflow[I, O]: ...
@overload
def workflow(function: Callable[[WorkflowContext], Awaitable[O]], /) -> Workflow[None, O]: ...
@overload
def workflow(
    *, name: str | None = None, prune: Prune = "all", keep_iterations: int = 100
) -> _WorkflowDecorator: ...
def workflow(
    function: Callable[..., Awaitable[Any]] | None = None,
    /,
    *,
    name: str | None = None,
    prune: Prune = "all",
    keep_iterations: int = 100,
) -> Any:
    """Make an async function a workflow; see `Workflow` for the options."""

    def define(target: Callable[..., Awaitable[Any]]) -> Workflow[Any, Any]:
        return Workflow(target, name=name, prune=prune, keep_iterations=keep_iterations)

    return define if function is None else define(function)


class _WorkflowDecorator(typing.Protocol):
    @overload
    def __call__(
        self, function: Callable[[WorkflowContext, I], Awaitable[O]], /
    ) -> Workflow[I, O]: ...
    @overload
    def __call__(
        self, function: Callable[[WorkflowContext], Awaitable[O]], /
    ) -> Workflow[None, O]: ...


class _ActivityDecorator(typing.Protocol):
    @overload
    def __call__(
        self, function: Callable[[ActivityContext, I], Awaitable[O]], /
    ) -> Activity[I, O]: ...
    @overload
    def __call__(
        self, function: Callable[[ActivityContext], Awaitable[O]], /
    ) -> Activity[None, O]: ...
    @overload
    def __call__(self, function: Callable[[ActivityContext, I], O], /) -> Activity[I, O]: ...
    @overload
    def __call__(self, function: Callable[[ActivityContext], O], /) -> Activity[None, O]: ...


@overload
def activity(function: Callable[[ActivityContext, I], Awaitable[O]], /) -> Activity[I, O]: ...
@overload
def activity(function: Callable[[ActivityContext], Awaitable[O]], /) -> Activity[None, O]: ...
@overload
def activity(function: Callable[[ActivityContext, I], O], /) -> Activity[I, O]: ...
@overload
def activity(function: Callable[[ActivityContext], O], /) -> Activity[None, O]: ...
@overload
def activity(
    *,
    name: str | None = None,
    process: bool = False,
    attempts: int | None = 5,
    initial: float = 1.0,
    factor: float = 2.0,
    maximum: float = 256.0,
    timeout: float | timedelta | None = 30.0,
    total_timeout: float | timedelta | None = None,
    heartbeat_timeout: float | timedelta | None = None,
    non_retryable: tuple[type[BaseException], ...] = (),
    jitter: float = 0.5,
) -> _ActivityDecorator: ...
def activity(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    process: bool = False,
    **retry: Any,
) -> Any:
    """Make a function an activity; see `Activity` and `RetryPolicy` for the options."""

    def define(target: Callable[..., Any]) -> Activity[Any, Any]:
        return Activity(target, name=name, retry=DEFAULT_RETRY.override(retry), process=process)

    return define if function is None else define(function)


class _OperationDecorator(typing.Protocol):
    @overload
    def __call__(
        self, function: Callable[[OperationContext, I], Awaitable[O]], /
    ) -> Operation[I, O]: ...
    @overload
    def __call__(
        self, function: Callable[[OperationContext], Awaitable[O]], /
    ) -> Operation[None, O]: ...


@overload
def operation(function: Callable[[OperationContext, I], Awaitable[O]], /) -> Operation[I, O]: ...
@overload
def operation(function: Callable[[OperationContext], Awaitable[O]], /) -> Operation[None, O]: ...
@overload
def operation(*, name: str | None = None, timeout: float | None = 30.0) -> _OperationDecorator: ...
def operation(
    function: Callable[..., Awaitable[Any]] | None = None,
    /,
    *,
    name: str | None = None,
    timeout: float | None = 30.0,
) -> Any:
    """Make an async function an operation, bounded by `timeout` seconds."""

    def define(target: Callable[..., Awaitable[Any]]) -> Operation[Any, Any]:
        return Operation(target, name=name, timeout=timeout)

    return define if function is None else define(function)
