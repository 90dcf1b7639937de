"""Random workflows: how they are made up, how they run, and what they must return.

A program is plain data, so it can be the input of a workflow: a list of steps, each a dictionary
with a kind and a number of its own. `execute` runs one on a context. `expect` says in plain Python,
without any engine, what it must return. Only what depends on time or on other people (which signal
came, how a child ended) is taken from what the code *saw*, and that may be seen only once: a replay
that shows the code something else is an error on the spot.
"""

import asyncio
import random
from typing import Any, Protocol

from perdure import (
    Activity,
    ActivityContext,
    ActivityFailed,
    Break,
    Cancelled,
    ChildCancelled,
    ChildFailed,
    ChildTerminated,
    Id,
    Message,
    Signal,
    Workflow,
    WorkflowContext,
    WorkflowFinished,
    activity,
    workflow,
)

Program = list[dict[str, Any]]
Seen = dict[str, Any]

RED: Signal[Any] = Signal("red", Any)
BLUE: Signal[Any] = Signal("blue", Any)
SIGNALS = {"red": RED, "blue": BLUE}
NAMES = ("alpha", "beta")
NEWS: Message[Any] = Message("news", Any)
SIMPLE = (
    *("work", "work", "work", "fail", "sleep", "wait", "check", "tags", "insert", "remove"),
    *("tagged", "message"),
)
DEEP = (
    *("loop", "join", "join", "closure"),
    *("call", "dispatch", "send", "only", "inline", "broken_join"),
)
WAITING = ("listen", "listen_many")


class Witness(Protocol):
    """Whoever watches programs run."""

    broken: bool

    def saw(self, workflow_id: Id, path: str, value: Any) -> Any:
        """The code got this value there. Returns it."""

    def begins(self, ctx: ActivityContext, path: str) -> None:
        """An attempt begins."""

    def worked(self, ctx: ActivityContext, path: str) -> int:
        """An attempt has done its work; gives a number that nobody else gets."""

    def starts(self, child: Id, program: Program) -> None:
        """A workflow with this program has a child or sibling."""


def value_of(number: int) -> int:
    return number * 7 % 1009


# -- making them up


class Author:
    """Writes programs; numbers are unique within one author."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.number = 0

    def program(self, depth: int = 2, most: int = 4, *, signals: bool = True) -> Program:
        kinds = [*SIMPLE, *(WAITING if signals else ())]
        if depth:
            kinds += DEEP
        steps = [
            self.step(self.rng.choice(kinds), depth, signals=signals)
            for _ in range(self.rng.randint(1, most))
        ]
        # A step inserted right before a join takes the place of a member that is not recorded yet,
        # see `test_found.py`.
        followed = zip(steps, [*steps[1:], {"kind": "nothing"}], strict=True)
        return [s for s, after in followed if s["kind"] != "insert" or "join" not in after["kind"]]

    def step(self, kind: str, depth: int, *, signals: bool) -> dict[str, Any]:
        rng = self.rng
        self.number += 1
        step: dict[str, Any] = {"kind": kind, "n": self.number}

        def body(most: int = 2) -> Program:
            return self.program(depth - 1, most, signals=signals)

        match kind:
            case "work" | "fail" | "insert" | "remove":
                step["took"] = rng.choice([0, 0, 0.01, 0.3, 3.0])
                step["failures"] = rng.choice([0, 0, 0, 1, 2])
                step["beats"] = rng.random() < 0.2
                step["counts"] = rng.random() < 0.4
            case "sleep":
                step["seconds"] = rng.choice([0, 0.01, 0.5, 3, 20, 90])
            case "listen" | "listen_many":
                step["names"] = rng.choice([["red"], ["blue"], ["red", "blue"]])
                step["timeout"] = rng.choice([None, 0, 0.2, 4, 40])
                step["limit"] = rng.randint(1, 3)
            case "tags":
                step["tags"] = {"t": rng.choice([1, "1", True]), "n": self.number}
            case "loop":
                step["times"] = rng.randint(1, 5)
                step["every"] = rng.randint(1, 3)
                step["body"] = body()
            case "join":
                step["members"] = [self.member(depth, signals) for _ in range(rng.randint(1, 5))]
            case "broken_join":
                step["members"] = [self.member(depth, signals) for _ in range(rng.randint(0, 3))]
                step["members"].insert(
                    rng.randint(0, len(step["members"])),
                    {**self.step("work", 0, signals=False), "kind": "fatal", "failures": 9},
                )
            case "closure":
                step["body"] = body()
            case "call" | "dispatch" | "inline":
                step["name"] = rng.choice(NAMES)
                step["between"] = body(1)
                step["program"] = self.program(depth - 1, 2, signals=signals)
            case "only":
                step["name"] = rng.choice(NAMES)
                step["key"] = f"only {rng.randint(1, 2)}"
                step["program"] = self.program(0, 2, signals=signals)
            case "send":
                step["name"] = rng.choice(NAMES)
                waits = self.step("listen", 0, signals=True)
                waits.update(names=["red"], timeout=None)
                step["program"] = [*self.program(0, 1, signals=False), waits]
        return step

    def member(self, depth: int, signals: bool) -> dict[str, Any]:
        kinds = [
            "work",
            "sleep",
            "closure",
            *(["listen", "listen", "listen_many"] if signals else []),
        ]
        return self.step(self.rng.choice(kinds), depth, signals=signals)


# -- running them


def make_workflows(witness: Witness, version: int) -> dict[str, Workflow[Any, Any]]:
    """The workflows that run programs, as of a version of the code (1 or 2)."""

    @activity(attempts=4, initial=0.05, factor=3, maximum=5, jitter=0.05, timeout=20)
    async def work(ctx: ActivityContext, order: dict[str, Any]) -> list[int]:
        path = order["path"]
        witness.begins(ctx, path)
        took = order["took"]
        if order["beats"]:
            for beat in range(3):
                await asyncio.sleep(took / 3)
                ctx.heartbeat(beat)
        elif took:
            await asyncio.sleep(took)
        if order["state"]:
            counts = ctx.state(dict[str, int])
            counts[path] = counts.get(path, 0) + 1
        if ctx.attempt <= order["failures"]:
            raise ValueError(f"attempt {ctx.attempt}")
        return [value_of(order["n"]), witness.worked(ctx, path)]

    workflows: dict[str, Workflow[Any, Any]] = {}

    async def run(ctx: WorkflowContext, task: dict[str, Any]) -> Any:
        executor = _Executor(witness, version, work, workflows, ctx.workflow_id)
        witness.starts(ctx.workflow_id, task["program"])
        try:
            results = await executor.run(ctx, task["program"], "", state=True)
        except Cancelled:
            if not task.get("tidy"):
                raise
            await executor.work(ctx, {"n": 0, "took": 0, "failures": 0}, "tidy", state=False)
            return "tidied"
        if task.get("bug") and witness.broken:
            raise RuntimeError("a bug in the code")
        return results

    @workflow(name="alpha")
    async def alpha(ctx: WorkflowContext, task: dict[str, Any]) -> Any:
        return await run(ctx, task)

    @workflow(name="beta")
    async def beta(ctx: WorkflowContext, task: dict[str, Any]) -> Any:
        return await run(ctx, task)

    workflows.update(alpha=alpha, beta=beta)
    return workflows


class _Executor:
    def __init__(
        self,
        witness: Witness,
        version: int,
        work: Activity[dict[str, Any], list[int]],
        workflows: dict[str, Workflow[Any, Any]],
        workflow_id: Id,
    ) -> None:
        self.witness = witness
        self.version = version
        self.activity = work
        self.workflows = workflows
        self.id = workflow_id

    def saw(self, path: str, value: Any) -> Any:
        return self.witness.saw(self.id, path, value)

    async def run(self, ctx: WorkflowContext, program: Program, at: str, *, state: bool) -> Any:
        return [await self.step(ctx, step, at, state=state) for step in program]

    def order(self, step: dict[str, Any], path: str, *, state: bool) -> dict[str, Any]:
        return {
            "n": step["n"],
            "path": path,
            "took": step["took"],
            "failures": step["failures"],
            "beats": step.get("beats", False),
            "state": state and step.get("counts", False),
        }

    async def work(
        self, ctx: WorkflowContext, step: dict[str, Any], path: str, *, state: bool
    ) -> int:
        value, unique = await ctx.activity(self.activity, self.order(step, path, state=state))
        self.saw(f"{path} work", [value, unique])
        return value

    async def step(
        self, ctx: WorkflowContext, step: dict[str, Any], at: str, *, state: bool
    ) -> Any:
        path = f"{at}/{step['n']}"
        match step["kind"]:
            case "work":
                return await self.work(ctx, step, path, state=state)
            case "fatal":
                return await self.work(ctx, step, path, state=False)
            case "fail":
                try:
                    await self.work(ctx, {**step, "failures": 9, "took": 0}, path, state=state)
                except ActivityFailed:
                    return "failed"
            case "sleep":
                await ctx.sleep(step["seconds"])
                # A later version inserts steps, which moves this time for all that follow.
                self.saw(f"{path} now, version {self.version}", ctx.now().isoformat())
                return "slept"
            case "wait":
                before = ctx.uuid().hex
                await ctx.sleep(0)
                return self.saw(path, [before, ctx.random().random()])
            case "check":
                return self.saw(path, await ctx.check_version(self.version))
            case "insert":
                if self.version == 2:
                    await self.work(ctx.v(2), step, path, state=False)
                return None
            case "remove":
                if self.version == 2:
                    await ctx.removed("activity", "work")
                else:
                    await self.work(ctx, step, path, state=False)
                return None
            case "tags":
                await ctx.set_tags(step["tags"])
                return "tagged"
            case "listen" | "listen_many":
                return self.saw(path, await self._listening(ctx, step))
            case "tagged":
                body = BLUE([str(self.id), path])
                found = await ctx.signal_tagged("alpha", {"kind": "a"}, body, missing_ok=True)
                return self.saw(path, found)
            case "message":
                await ctx.message(NEWS(path))
                return "told"
            case "loop":
                return await self.loop(ctx, step, path, state=state)
            case "join":
                members = [self.member(ctx, member, path) for member in step["members"]]
                outcome = await ctx.join_all(members)
                return [
                    self.result(member, result, path)
                    for member, result in zip(step["members"], outcome, strict=True)
                ]
            case "broken_join":
                try:
                    await ctx.join(*(self.member(ctx, m, path) for m in step["members"]))
                except ActivityFailed:
                    return "broken"
            case "closure":
                return await ctx.closure(
                    lambda inner: self.run(inner, step["body"], path, state=state)
                )
            case "inline":
                return await ctx.closure(
                    lambda inner: self.run(inner, step["program"], path, state=state)
                )
            case "call" | "dispatch" | "send" | "only":
                return await self.child(ctx, step, path, state=state)
        raise AssertionError(step)

    def member(self, ctx: WorkflowContext, step: dict[str, Any], at: str) -> Any:
        path = f"{at}/{step['n']}"
        match step["kind"]:
            case "work" | "fatal":
                return ctx.activity(self.activity, self.order(step, path, state=False))
            case "sleep":
                return ctx.sleep(step["seconds"])
            case "listen" | "listen_many":
                return self._listening(ctx, step)
        return lambda inner: self.run(inner, step["body"], path, state=False)

    def result(self, step: dict[str, Any], result: Any, at: str) -> Any:
        """What `step` would have returned for what its member of a join returned."""
        path = f"{at}/{step['n']}"
        match step["kind"]:
            case "work":
                return self.saw(f"{path} work", result)[0]
            case "sleep":
                return "slept"
            case "listen" | "listen_many":
                return self.saw(path, result)
        return result

    def _listening(self, ctx: WorkflowContext, step: dict[str, Any]) -> Any:
        kinds = [SIGNALS[name] for name in step["names"]]
        if step["kind"] == "listen":
            if step["timeout"] is None:
                return ctx.listen(*kinds)
            return ctx.listen(*kinds, timeout=step["timeout"])
        return ctx.listen_many(*kinds, n=step["limit"], timeout=step["timeout"])

    async def loop(
        self, ctx: WorkflowContext, step: dict[str, Any], path: str, *, state: bool
    ) -> Any:
        async def body(inner: WorkflowContext, done: dict[str, Any]) -> Break[Any] | None:
            turn = done["turn"]
            done["results"].append(
                await self.run(inner, step["body"], f"{path}.{turn}", state=state)
            )
            done["turn"] = turn + 1
            return Break(done["results"]) if done["turn"] == step["times"] else None

        return await ctx.loop(body, {"turn": 0, "results": []}, commit_every=step["every"])

    async def child(
        self, ctx: WorkflowContext, step: dict[str, Any], path: str, *, state: bool
    ) -> Any:
        target = self.workflows[step["name"]]
        task = {"program": step["program"]}
        try:
            if step["kind"] == "call":
                return self.saw(path, ["ended", await ctx.call(target, task)])
            if step["kind"] == "only":
                return self.saw(path, ["ended", await ctx.call(target, task, unique=step["key"])])
            child = await ctx.dispatch(target, task, tags={"of": path})
            self.saw(f"{path} child", str(child.id))
            if step["kind"] == "send":
                try:
                    await child.signal(RED([str(self.id), path]))
                except WorkflowFinished:
                    self.saw(f"{path} refused", True)
            else:
                await self.run(ctx, step["between"], path, state=state)
            return self.saw(path, ["ended", await child.result()])
        except ChildFailed:
            return self.saw(path, ["failed", None])
        except ChildTerminated:
            return self.saw(path, ["terminated", None])
        except ChildCancelled:
            return self.saw(path, ["cancelled", None])


# -- what they must return


def expect(program: Program, seen: Seen, at: str = "") -> Any:
    """What a program returns, given what its code saw."""
    return [_expect(step, seen, at) for step in program]


def _expect(step: dict[str, Any], seen: Seen, at: str) -> Any:
    path = f"{at}/{step['n']}"
    match step["kind"]:
        case "work":
            return value_of(step["n"])
        case "fail":
            return "failed"
        case "sleep":
            return "slept"
        case "insert" | "remove":
            return None
        case "tags":
            return "tagged"
        case "message":
            return "told"
        case "broken_join":
            return "broken"
        case "loop":
            return [expect(step["body"], seen, f"{path}.{turn}") for turn in range(step["times"])]
        case "join":
            return [_expect(member, seen, path) for member in step["members"]]
        case "closure":
            return expect(step["body"], seen, path)
        case "inline":
            return expect(step["program"], seen, path)
    return seen.get(path, "never seen")


def counted(program: Program, at: str = "") -> dict[str, int]:
    """How often each counting activity must have counted in the workflow's state."""
    counts: dict[str, int] = {}
    for step in program:
        path = f"{at}/{step['n']}"
        match step["kind"]:
            case "work" if step["counts"]:
                counts[path] = 1
            case "loop":
                for turn in range(step["times"]):
                    counts |= counted(step["body"], f"{path}.{turn}")
            case "closure":
                counts |= counted(step["body"], path)
            case "inline":
                counts |= counted(step["program"], path)
            case "dispatch":
                counts |= counted(step["between"], path)
    return counts
