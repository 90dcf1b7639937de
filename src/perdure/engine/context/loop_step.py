"""The loop step: repeat a body, with a state that survives, without a history that grows for ever.

The loop's own event holds the next iteration to run and the state at that point. It is committed
before the first iteration, every `commit_every` iterations, and at the end, always in one
transaction with the removal of the finished iterations it makes superfluous. Iteration i (from 0)
is the branch at coordinate i+1 of the loop. Iterations have no event of their own: the loop's event
is there before them, and a commit per iteration is saved.

The time of the loop's event is also the time that the next iteration begins with: the steps that
carried it are forgotten, and a replay must see the same `ctx.now()` as the first run.
"""

from __future__ import annotations

import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.codec import Codec, codec_for
from perdure.engine.context.branch import Branch
from perdure.engine.context.step import Step
from perdure.engine.database.steps import commit_loop
from perdure.engine.history.cursor import Match, Replay
from perdure.engine.history.events import EventKind, LoopEvent
from perdure.engine.history.location import START

if TYPE_CHECKING:
    from perdure.engine.context.workflow import WorkflowContext

__all__ = ["Break", "Continue", "LoopBody", "LoopStep"]

S = TypeVar("S")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Break(Generic[B]):
    """Returned by a loop body: end the loop with this value."""

    value: B


@dataclass(frozen=True, slots=True)
class Continue(Generic[S]):
    """Returned by a loop body: go on, with this state instead of the current one."""

    state: S


LoopBody = Callable[["WorkflowContext", S], Awaitable[Break[B] | Continue[S] | None]]


class LoopStep(Step[B]):
    """Run `body` until it returns `Break`."""

    __slots__ = ("body", "codec", "commit_every", "output_codec", "state")

    kind = EventKind.LOOP

    def __init__(
        self,
        branch: Branch,
        version: int,
        body: LoopBody[Any, B],
        state: Any,
        commit_every: int,
    ) -> None:
        self.codec = codec_for(type(state))
        self.output_codec: Codec[B] = codec_for(_break_type(body))
        super().__init__(branch, version)
        self.body = body
        self.state = state
        self.commit_every = commit_every

    async def perform(self, match: Match) -> B:
        branch = self.branch
        if isinstance(match, Replay):
            event = match.event
            assert isinstance(event, LoopEvent)
            if event.output is not None:
                branch.pass_over(event)
                return self.output_codec.decode(event.output)
        else:
            event = self._event(branch, 0, self.codec.encode(self.state), branch.run.now())
            await branch.run.write(branch.key(match.coordinate), event)
        return await self._repeat(match, event)

    def _event(
        self,
        loop: Branch,
        iteration: int,
        state: bytes,
        created_at: int,
        output: bytes | None = None,
    ) -> LoopEvent:
        # Not before the iterations forgotten with it, even if the wall clock was set back.
        at = max(loop.run.now(), loop.at)
        return LoopEvent(self.version, created_at, at, iteration, state, output, joined=self.joined)

    async def _repeat(self, match: Match, event: LoopEvent) -> B:
        branch = self.branch
        state = self.codec.decode(event.state)
        iteration = committed = event.iteration
        loop = branch.child(match.coordinate, self)
        loop.pass_over(event)
        last_known = branch.run.history.last_branch(loop.root) or START
        try:
            while True:
                loop.entered += 1
                place = (iteration + 1,)
                body = loop.child(place, past=place < last_known)
                outcome = await self._iterate(loop, body, state)
                iteration += 1
                if isinstance(outcome, Continue):
                    state = outcome.state
                ended = isinstance(outcome, Break)
                if not ended and iteration - committed < self.commit_every:
                    continue
                output = (
                    self.output_codec.encode(outcome.value) if isinstance(outcome, Break) else None
                )
                stored = self.codec.encode(state)
                commit = self._event(loop, iteration, stored, event.created_at, output)
                await self._commit(match, commit)
                loop.pass_over(commit)
                committed = iteration
                if output is not None:
                    return self.output_codec.decode(output)
                # What the next iteration sees is what a replay would see.
                state = self.codec.decode(stored)
        finally:
            branch.rejoin(loop)

    async def _iterate(self, loop: Branch, body: Branch, state: Any) -> Any:
        from perdure.engine.context.workflow import WorkflowContext

        run = loop.run
        started = run.now()
        try:
            outcome = await self.body(WorkflowContext(body, self.version), state)
            body.finish()
        finally:
            loop.rejoin(body)
        run.services.metrics.loop_iterated(run.lease.name, (run.now() - started) / 1000)
        return outcome

    async def _commit(self, match: Match, event: LoopEvent) -> None:
        run = self.branch.run
        services = run.services
        await run.commit(
            commit_loop(
                services.database,
                services.keys,
                run.lease,
                self.branch.key(match.coordinate),
                event,
                finished_before=event.iteration,
                retention=run.workflow.keep_iterations,
            )
        )
        services.metrics.loop_committed(run.lease.name, max(run.now() - event.at, 0) / 1000)


def _break_type(body: LoopBody[Any, Any]) -> Any:
    """Return what `Break` carries by the body's return annotation; Any when that does not say."""
    try:
        returned = typing.get_type_hints(body).get("return")
    except (NameError, TypeError):
        # Types of a local scope cannot be named from here; plain values need no name.
        return Any
    members = (returned, *typing.get_args(returned))
    carried = [typing.get_args(m)[0] for m in members if typing.get_origin(m) is Break]
    return carried[0] if len(carried) == 1 else Any
