"""What a person sees while the demo runs: bars on a terminal, plain lines anywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from stdlib_index.source import Package

__all__ = ["LiveScreen", "PlainScreen", "Screen", "screen_for"]

_BARS = 12


class Screen(Protocol):
    """Shows how many files of each package are done, and says what happens."""

    done: int

    def say(self, text: str) -> None:
        """Show a line that stays."""

    def show(self, package: str, done: int) -> None:
        """Note that `done` files of `package` are finished."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class _Counter:
    """Keeps the newest number of every package; `done` is their sum."""

    def __init__(self, packages: Sequence[Package]) -> None:
        self.total = sum(len(package.paths) for package in packages)
        self.done = 0
        self._by_package = {package.name: 0 for package in packages}

    def count(self, package: str, done: int) -> None:
        newer = max(done, self._by_package[package])
        self.done += newer - self._by_package[package]
        self._by_package[package] = newer


class PlainScreen(_Counter):
    """Lines for pipes and log files: one for every tenth of the work."""

    def __init__(self, console: Console, packages: Sequence[Package]) -> None:
        super().__init__(packages)
        self._console = console
        self._tenths = 0

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def show(self, package: str, done: int) -> None:
        self.count(package, done)
        if (tenths := 10 * self.done // self.total) > self._tenths:
            self._tenths = tenths
            self.say(f"  {self.done:>5,} of {self.total:,} files ({tenths}0 %)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class LiveScreen(_Counter):
    """A bar for everything and one for each of the largest packages."""

    def __init__(self, console: Console, packages: Sequence[Package]) -> None:
        super().__init__(packages)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._all = self._progress.add_task("[bold]all files", total=self.total)
        largest = sorted(packages, key=lambda package: len(package.paths), reverse=True)[:_BARS]
        self._bars: dict[str, TaskID] = {
            package.name: self._progress.add_task(package.name, total=len(package.paths))
            for package in largest
        }

    def say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False)

    def show(self, package: str, done: int) -> None:
        self.count(package, done)
        self._progress.update(self._all, completed=self.done)
        if package in self._bars:
            self._progress.update(self._bars[package], completed=self._by_package[package])

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def screen_for(console: Console, packages: Sequence[Package]) -> Screen:
    """The screen that fits where the output goes."""
    kind = LiveScreen if console.is_terminal else PlainScreen
    return kind(console, packages)
