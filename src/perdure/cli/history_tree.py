"""The history of a workflow as a tree on the screen."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from perdure.cli.output import ago, clean, moment, shown, span, state_text
from perdure.cli.render import progress_text
from perdure.engine.admin.views import HistoryNode, WorkflowHistory

__all__ = ["history_view"]

_ACTIVITY_STYLES = {"failed": "red", "retrying": "yellow", "running": "cyan"}


def history_view(history: WorkflowHistory, now: int, *, timestamps: bool) -> RenderableType:
    """The workflow and its events, each with what is worth seeing at a glance."""
    workflow = history.workflow
    title = Text.assemble(
        clean(workflow.name).append(" "), (workflow.id, "dim"), " ", state_text(workflow.state)
    )
    tree = Tree(title, guide_style="dim")
    _grow(tree, history.events, now, timestamps=timestamps)
    if not history.events:
        tree.add(Text("no recorded steps", style="dim"))
    progress = [Text("now: ") + progress_text(each, now) for each in workflow.progress]
    return Group(tree, *progress)


def _grow(tree: Tree, nodes: list[HistoryNode], now: int, *, timestamps: bool) -> None:
    for node in nodes:
        branch = tree.add(_line(node, now, timestamps=timestamps))
        _grow(branch, node.children, now, timestamps=timestamps)


def _line(node: HistoryNode, now: int, *, timestamps: bool) -> Text:
    line = Text.assemble((node.location, "cyan"), " ", (node.kind, "bold"))
    if node.name is not None:
        line.append(" ").append_text(clean(node.name))
    if node.version > 1:
        line.append(f" v{node.version}", style="magenta")
    for part in _facts(node, now):
        line.append("  ").append_text(part)
    if timestamps and node.created_at:
        line.append(
            f"  {moment(node.created_at)} +{span(max(node.at - node.created_at, 0))}", "dim"
        )
    if node.forgotten:
        line.stylize("dim")
    return line


def _facts(node: HistoryNode, now: int) -> list[Text]:
    describe = _DESCRIBED.get(node.kind)
    return [] if describe is None else describe(node.details, now)


def _activity(details: dict[str, Any], now: int) -> list[Text]:
    parts = []
    state = details.get("state")
    if state != "done":
        parts.append(Text(str(state), style=_ACTIVITY_STYLES.get(str(state), "")))
    attempts = details.get("attempts", 0)
    if attempts > 1:
        parts.append(Text(f"{attempts} attempts"))
    parts += _folded(details.get("failures") or [])
    if details.get("progress") is not None:
        parts.append(Text("progress ") + shown(details["progress"]))
    if state == "retrying" and details["retry_at"] > now:
        parts.append(Text(f"next attempt {ago(details['retry_at'], now)}"))
    if "input" in details:
        parts.append(shown(details["input"]))
    if state == "done":
        parts.append(Text("-> ") + shown(details.get("output")))
    return parts


def _folded(failures: list[dict[str, Any]]) -> list[Text]:
    """Equal errors as one with a count, `x3 last TypeError: ...`."""
    counts = Counter(f"{failure['type']}: {failure['message']}" for failure in failures)
    return [clean(f"x{count} last {text}" if count > 1 else text) for text, count in counts.items()]


def _loop(details: dict[str, Any], _now: int) -> list[Text]:
    if details.get("ended"):
        return [
            Text(f"ended after {details['iteration']} iterations -> "),
            shown(details["output"]),
        ]
    return [Text(f"at iteration {details['iteration']}"), shown(details.get("state"))]


def _sleep(details: dict[str, Any], now: int) -> list[Text]:
    deadline = details["deadline"]
    words = {"interrupted": "ended early by a signal", "uninterrupted": "ran out"}
    state = words.get(details["state"])
    until = Text(f"until {moment(deadline)} ({ago(deadline, now)})")
    return [until] if state is None else [until, Text(state)]


def _signals(details: dict[str, Any], _now: int) -> list[Text]:
    return [
        clean(f"{signal['name']} ") + shown(signal.get("body")) for signal in details["signals"]
    ]


def _signal_send(details: dict[str, Any], _now: int) -> list[Text]:
    return [Text(f"to {_signal_target(details)}"), shown(details.get("body"))]


def _signal_target(details: dict[str, Any]) -> str:
    if details.get("closed_as"):
        return f"{details['target']}, which was {details['closed_as']} already"
    return "nobody: no such workflow" if details.get("missing") else str(details["target"])


def _message(details: dict[str, Any], _now: int) -> list[Text]:
    topic = [clean(f"topic {details['topic']}")] if details.get("topic") else []
    return [*topic, shown(details.get("body"))]


def _child(details: dict[str, Any], _now: int) -> list[Text]:
    return [Text(details["workflow_id"])]


def _child_result(details: dict[str, Any], _now: int) -> list[Text]:
    parts = [Text(details["workflow_id"]), state_text(details["state"])]
    failure = details.get("failure")
    if failure is not None:
        return [*parts, clean(f"{failure['type']}: {failure['message']}")]
    return [*parts, Text("-> ") + shown(details.get("output"))]


def _cancel(details: dict[str, Any], _now: int) -> list[Text]:
    return [clean(details["reason"])] if details.get("reason") else []


def _everything(details: dict[str, Any], _now: int) -> list[Text]:
    return [clean(f"{key} ") + shown(value) for key, value in details.items()]


_DESCRIBED = {
    "activity": _activity,
    "cancel": _cancel,
    "child result": _child_result,
    "loop": _loop,
    "message send": _message,
    "removed": _everything,
    "signal send": _signal_send,
    "signals": _signals,
    "sleep": _sleep,
    "sub workflow": _child,
    "tags": _everything,
    "unreadable": _everything,
    "version check": _everything,
}
