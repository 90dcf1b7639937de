"""The pub/sub subjects of the engine. All of them are hints: losing every message costs latency.

Ids appear as hexadecimal text, which is cheaper to make than their base-36 form.
"""

from __future__ import annotations

__all__ = ["closed", "message", "signalled", "work", "worker"]


def work() -> str:
    """Prefix of the doorbell that announces new wakes; the workflow's name follows."""
    return "perdure.work"


def closed(workflow_id: bytes) -> str:
    """A workflow ended: whoever waits for its result may look."""
    return f"perdure.closed.{workflow_id.hex()}"


def signalled(workflow_id: bytes) -> str:
    """A signal was put into the queue of a workflow."""
    return f"perdure.signal.{workflow_id.hex()}"


def worker(worker_id: bytes) -> str:
    """To one worker: a workflow it runs was cancelled or terminated; the payload is its id."""
    return f"perdure.worker.{worker_id.hex()}"


def message(name: str, topic: str) -> str:
    """A user's message on a topic; an empty topic is a topic like any other."""
    return f"perdure.message.{name}:{topic}"
