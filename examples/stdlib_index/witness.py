"""What the store itself says, read while no worker runs: results, steps, and one timeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure import Engine
from perdure.engine.admin.views import HistoryNode, WorkflowHistory
from stdlib_index.workflows import index_package, read_file

__all__ = ["Witness", "observe", "timeline"]


@dataclass(frozen=True)
class Witness:
    """How many results are recorded for each file, and the histories they come from."""

    recorded: Counter[str]
    histories: list[WorkflowHistory]

    @property
    def unfinished(self) -> frozenset[str]:
        """The ids of package workflows that have begun and not ended."""
        return frozenset(
            history.workflow.id
            for history in self._packages()
            if history.events and history.workflow.state != "complete"
        )

    def shortest(self, preferred: frozenset[str]) -> WorkflowHistory:
        """The shortest history of a package; one of the preferred ids if there is one."""
        return min(
            self._packages(),
            key=lambda history: (history.workflow.id not in preferred, _size(history)),
        )

    def _packages(self) -> list[WorkflowHistory]:
        return [h for h in self.histories if h.workflow.name == index_package.name]

    @property
    def steps(self) -> int:
        """How many events all histories hold."""
        return sum(map(_size, self.histories))


async def observe(store: Path) -> Witness:
    """Open the store without a worker and read the history of every workflow."""
    async with Engine(f"rocksdb:{store}", worker=False) as engine:
        page = await engine.admin.list(limit=1000)
        histories = [
            await engine.admin.history(found.id, forgotten=True) for found in page.workflows
        ]
    finished = (
        node.details["output"]["path"]
        for history in histories
        for node in _walk(history.events)
        if node.name == read_file.name and node.details.get("state") == "done"
    )
    return Witness(Counter(finished), histories)


def timeline(history: WorkflowHistory, kills: Sequence[int], limit: int = 40) -> list[str]:
    """The tree of a history, one line an event, with seconds since the workflow was dispatched.

    `kills` are the instants of the kills (ms); each stands before the first event after it. Of a
    long history only `limit` lines are shown, around the first kill.
    """
    began = history.workflow.created_at
    coming = sorted(kill for kill in kills if kill > began)
    lines: list[str] = []
    interruption = 0
    for depth, node in _nested(history.events):
        while coming and coming[0] < node.created_at:
            interruption = interruption or len(lines)
            lines.append(f"{(coming.pop(0) - began) / 1000:8.3f} s  ---- worker killed ----")
        took = f"  ({node.at - node.created_at} ms)" if node.kind == "activity" else ""
        begun = (node.created_at - began) / 1000
        lines.append(f"{begun:8.3f} s  {'  ' * depth}{_words(node)}{took}")
    begin = max(0, min(interruption - limit // 2, len(lines) - limit))
    shown = lines[begin : begin + limit]
    before, after = begin, len(lines) - begin - len(shown)
    return [*_left_out(before), *shown, *_left_out(after)]


def _left_out(count: int) -> list[str]:
    return [f"            ... {count} more"] if count else []


def _size(history: WorkflowHistory) -> int:
    return sum(1 for _ in _walk(history.events))


def _words(node: HistoryNode) -> str:
    about = node.details.get("input")
    return " ".join([node.kind, node.name or "", about["path"] if about else ""]).rstrip()


def _nested(nodes: Iterable[HistoryNode], depth: int = 0) -> Iterator[tuple[int, HistoryNode]]:
    for node in nodes:
        yield depth, node
        yield from _nested(node.children, depth + 1)


def _walk(nodes: Iterable[HistoryNode]) -> Iterator[HistoryNode]:
    return (node for _, node in _nested(nodes))
