"""Random workflow programs, as data: JSON objects that the workflow of `interpreter` runs.

A program has this form; every step is an object with the field `op`:

* `main`: the steps of the workflow, one after the other. Besides ordinary steps: `gate`, where the
  client acts while the workflow waits, and `continue`, which continues as new.
* `detached`: steps that run beside `main` and are awaited at the end.
* `free`: what the client does right after the start, while the workflow runs.
* `gates`: what the client does at each gate.
* `on_cancel`, `swallow`: what the workflow does when it is cancelled, and whether it then goes on.
* `end`: `return` or `fail`. `cache`: how many workflows the worker may keep.

Programs are comparable: whatever the server's timing decides (who wins a race, whether a
cancellation comes before the end of what it cancels) is marked `masked` and has the value `"?"` in
the result. Only waits that cannot end by themselves ("stuck") are cancelled or lose with certainty,
and only then is the outcome compared. What the workflow does next never depends on a masked value.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, given, seed as seeded, settings, strategies as st

__all__ = ["Step", "marked", "programs", "some_programs"]

Step = dict[str, Any]

_FOREVER = 3_600_000
_CANCEL_TYPES = (0, 1, 2)
_CHILD_CANCEL_TYPES = (0, 1, 2, 3)


def _is_stuck(step: Step) -> bool:
    """Whether it ends only when it is cancelled."""
    match step["op"]:
        case "activity" | "local_activity":
            return bool(step["kind"] == "slow")
        case "timer":
            return bool(step["ms"] == _FOREVER)
        case "forever":
            return True
        case "child":
            return bool(step["mode"] == "run" and _is_stuck(step["body"]))
        case "gather" | "first":
            return all(map(_is_stuck, step["steps"]))
        case "sequence":
            return _is_stuck(step["steps"][0])
        case "attempt":
            return _is_stuck(step["body"])
        case _:
            return False


def marked(step: Step) -> Step:
    """The step, marked if it is a race or a cancellation that the server's timing decides."""
    if step["op"] == "first":
        step["masked"] = sum(not _is_stuck(one) for one in step["steps"]) != 1
    elif step["op"] == "cancel":
        step["masked"] = not _is_stuck(step["body"])
    return step


# Leaves

_timers = st.fixed_dictionaries(
    {"op": st.just("timer"), "ms": st.sampled_from([0, 1, 10, 40]), "random": st.booleans()}
)
_activities = st.fixed_dictionaries(
    {
        "op": st.just("activity"),
        "kind": st.sampled_from(["ok", "ok", "fail", "retry", "exhaust"]),
        "cancel_type": st.sampled_from(_CANCEL_TYPES),
    }
)
_local_activities = st.fixed_dictionaries(
    {
        "op": st.just("local_activity"),
        "kind": st.sampled_from(["ok", "ok", "fail", "retry", "exhaust"]),
        "cancel_type": st.sampled_from(_CANCEL_TYPES),
        "backoff": st.booleans(),
    }
)
_instant = st.one_of(
    st.fixed_dictionaries(
        {
            "op": st.just("patch"),
            "id": st.sampled_from(["a", "b", "c"]),
            "deprecated": st.booleans(),
        }
    ),
    st.fixed_dictionaries({"op": st.just("memo"), "value": st.integers(0, 9)}),
    st.fixed_dictionaries({"op": st.just("attribute"), "value": st.sampled_from(["x", "y", ""])}),
    st.just({"op": "random"}),
    st.just({"op": "yield"}),
    st.just({"op": "look"}),
)
_external = st.sampled_from(
    [
        {"op": "external", "kind": "poke_self"},
        {"op": "external", "kind": "signal_missing"},
        {"op": "external", "kind": "cancel_missing"},
    ]
)
_rare: st.SearchStrategy[Step] = st.sampled_from(
    [
        {"op": "stumble"},
        {"op": "activity", "kind": "timeout", "cancel_type": 0},
        {"op": "local_activity", "kind": "timeout", "cancel_type": 0, "backoff": False},
        {"op": "child", "mode": "duplicate"},
    ]
)


@st.composite
def _stuck(draw: st.DrawFn, depth: int) -> Step:
    """A step that ends only when it is cancelled."""
    kind = draw(st.integers(0, 9 if depth else 6))
    if kind <= 1:
        return {"op": "timer", "ms": _FOREVER, "random": False}
    if kind <= 3:
        how = draw(st.sampled_from(_CANCEL_TYPES))
        return {"op": "activity", "kind": "slow", "cancel_type": how}
    if kind == 4:
        return {"op": "forever"}
    if kind == 5:
        how = draw(st.sampled_from(_CANCEL_TYPES))
        return {"op": "local_activity", "kind": "slow", "cancel_type": how, "backoff": False}
    if kind == 6:
        child: Step = draw(_children(depth=0, body=draw(_stuck(0)), mode="run"))
        return child
    if kind == 7:
        steps = draw(st.lists(_stuck(depth - 1), min_size=1, max_size=3))
        return marked({"op": draw(st.sampled_from(["gather", "first"])), "steps": steps})
    if kind == 8:
        return {"op": "sequence", "steps": [draw(_stuck(depth - 1)), draw(_steps(depth - 1))]}
    return draw(_attempts(depth, draw(_stuck(depth - 1))))


@st.composite
def _attempts(draw: st.DrawFn, depth: int, body: Step) -> Step:
    """`try`, and `finally` or `except CancelledError`."""
    after = draw(_steps(depth - 1))
    return {"op": "attempt", "body": body, "after": after, "swallow": draw(st.booleans())}


@st.composite
def _children(draw: st.DrawFn, depth: int, body: Step | None = None, mode: str = "") -> Step:
    mode = mode or draw(st.sampled_from(["run", "run", "poke", "cancel", "cancel_external"]))
    if body is None:
        body = draw(_stuck(0) if mode.startswith("cancel") else _steps(max(0, depth - 1)))
    policies = [1, 3] if _is_stuck(body) else [1, 2, 3]
    return {
        "op": "child",
        "mode": mode,
        "body": body,
        "cancel_type": draw(st.sampled_from(_CHILD_CANCEL_TYPES)),
        "policy": draw(st.sampled_from(policies)),
    }


@st.composite
def _composites(draw: st.DrawFn, depth: int) -> Step:
    kind = draw(st.integers(0, 9))
    some = st.lists(_steps(depth - 1), min_size=1, max_size=3)
    if kind <= 1:
        return {"op": "sequence", "steps": draw(some)}
    if kind <= 3:
        return {"op": "gather", "steps": draw(some)}
    if kind == 4:
        return marked({"op": "first", "steps": draw(some)})
    if kind == 5:
        steps = [draw(_steps(depth - 1)), *draw(st.lists(_stuck(depth - 1), max_size=2))]
        return marked({"op": "first", "steps": draw(st.permutations(steps))})
    if kind <= 8:
        body = draw(_steps(depth - 1) if kind == 6 else _stuck(depth - 1))
        after = draw(st.one_of(st.none(), st.just({"op": "yield"}), _steps(0)))
        return marked({"op": "cancel", "body": body, "after": after})
    return draw(_attempts(depth, draw(_steps(depth - 1))))


@st.composite
def _steps(draw: st.DrawFn, depth: int) -> Step:
    """A step that ends by itself."""
    kind = draw(st.integers(0, 23 if depth else 15))
    if kind <= 2:
        return draw(_timers)
    if kind <= 5:
        return draw(_activities)
    if kind <= 8:
        return draw(_local_activities)
    if kind <= 12:
        return draw(_instant)
    if kind <= 14:
        return draw(_external)
    if kind == 15 and draw(st.integers(0, 3)) == 0:
        return draw(_rare)
    if kind == 15:
        return draw(_instant)
    if kind <= 18:
        return draw(_children(depth))
    return draw(_composites(depth))


# What the client does


@st.composite
def _actions(draw: st.DrawFn, key: str, *, updates: bool) -> Step:
    kinds = ["signal", "signal", "poke", "query", "bad_query", "evict", "evict", "pause"]
    if updates:
        kinds += ["update", "update", "update"]
    act = draw(st.sampled_from(kinds))
    action: Step = {"act": act}
    if act == "signal":
        action |= {"key": key, "body": draw(_steps(1))}
    elif act == "update":
        body = draw(st.one_of(_steps(1), st.just({"op": "raise"})))
        action |= {"key": key, "body": body, "reject": draw(st.integers(0, 4)) == 0}
    elif act == "pause":
        action["ms"] = draw(st.integers(0, 40))
    return action


@st.composite
def _scripts(draw: st.DrawFn, name: str, most: int, *, updates: bool) -> list[Step]:
    count = draw(st.integers(0, most))
    return [draw(_actions(f"{name}{n}", updates=updates)) for n in range(count)]


@st.composite
def programs(draw: st.DrawFn) -> dict[str, Any]:
    """A whole program."""
    main = draw(st.lists(_steps(2), min_size=1, max_size=4))
    continues = draw(st.integers(0, 3)) == 0
    if continues:
        main.insert(draw(st.integers(0, len(main))), {"op": "continue"})
    pokes = draw(st.integers(0, 2))
    if pokes:
        timeout = draw(st.sampled_from([None, None, 1, 5000]))
        wait = {"op": "wait", "pokes": pokes, "ms": timeout, "masked": timeout is not None}
        main.insert(draw(st.integers(0, len(main))), wait)
    gates: dict[str, list[Step]] = {}
    for number in range(draw(st.integers(0, 2))):
        main.insert(draw(st.integers(0, len(main))), {"op": "gate", "name": str(number)})
        gates[str(number)] = draw(_scripts(f"gate{number}-", 3, updates=True))
    if gates and draw(st.integers(0, 3)) == 0:
        gates[draw(st.sampled_from(sorted(gates)))].append({"act": "cancel"})
    free = draw(_scripts("free", 4, updates=not continues))
    free += [{"act": "poke"}] * pokes
    return {
        "cache": draw(st.sampled_from([0, 1, 1, 2])),
        "main": main,
        "detached": draw(st.lists(_steps(2), max_size=2)),
        "abandoned": draw(st.lists(_steps(1), max_size=1)),
        "free": free,
        "gates": gates,
        "on_cancel": draw(_steps(1)),
        "swallow": draw(st.booleans()),
        "end": draw(st.sampled_from(["return", "return", "return", "fail"])),
    }


def some_programs(count: int, seed: int) -> list[dict[str, Any]]:
    """The programs of a seed."""
    found: list[dict[str, Any]] = []

    @seeded(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def collect(program: dict[str, Any]) -> None:
        found.append(program)

    collect()
    return found[:count]
