"""Converters, codecs, interceptors, headers and what the contributed parts make of them."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, ClassVar
from uuid import UUID

from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    HeaderCodecBehavior,
    Interceptor as ClientInterceptor,
    OutboundInterceptor,
    StartWorkflowInput,
)
from temporalio.common import RawValue, RetryPolicy
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
)
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    HandleQueryInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    Replayer,
    StartActivityInput,
    StartChildWorkflowInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

with workflow.unsafe.imports_passed_through():
    from pydantic import BaseModel
    from temporalio.contrib.opentelemetry import TracingInterceptor
    from temporalio.contrib.pydantic import pydantic_data_converter
    from tests.temporal.parity.stage import Stage, events, outcome, scenario

SECONDS = timedelta(seconds=20)


@dataclass
class Data:
    name: str
    items: list[int]
    inner: Data | None = None


class Colour(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


@activity.defn
async def echo(value: Data) -> Data:
    return dataclasses.replace(value, name=value.name + "!")


@activity.defn
async def echo_any(value: Any) -> Any:
    return value


@activity.defn
async def fails_with_details() -> None:
    raise ApplicationError("secret message", Data("secret", [1]), type="Secret", non_retryable=True)


@workflow.defn
class Converts:
    @workflow.run
    async def run(self, value: Data, colour: Colour, number: Number, when: UUID) -> Any:
        echoed = await workflow.execute_activity(echo, value, start_to_close_timeout=SECONDS)
        local = await workflow.execute_local_activity(echo, value, start_to_close_timeout=SECONDS)
        found = [
            echoed,
            local,
            [type(colour).__name__, type(number).__name__, str(when)],
            await workflow.execute_activity(
                "echo_any", b"bytes", start_to_close_timeout=SECONDS, result_type=bytes
            )
            == b"bytes",
            await workflow.execute_activity(echo_any, None, start_to_close_timeout=SECONDS),
            await workflow.execute_activity(
                "echo_any",
                UUID(int=5),
                start_to_close_timeout=SECONDS,
                result_type=UUID,
            )
            == UUID(int=5),
        ]
        raw: RawValue = await workflow.execute_activity(
            "echo_any", "raw", start_to_close_timeout=SECONDS, result_type=RawValue
        )
        found.append(raw.payload.data.decode())
        return found


ARGUMENTS = (Data("a", [1], Data("b", [])), Colour.RED, Number.ONE, UUID(int=7))


@scenario
async def conversions(stage: Stage) -> Any:
    async with stage.worker([Converts], [echo, echo_any]):
        handle = await stage.start(Converts, *ARGUMENTS)
        return [await outcome(handle.result()), await stage.history(handle)]


class Reverses(PayloadCodec):
    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        await asyncio.sleep(0)
        return [
            Payload(
                metadata={"encoding": b"binary/reversed"}, data=payload.SerializeToString()[::-1]
            )
            for payload in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload.FromString(payload.data[::-1])
            if payload.metadata.get("encoding") == b"binary/reversed"
            else payload
            for payload in payloads
        ]


def _unnumbered(line: str) -> str:
    """A line of history without the ids of events."""
    return re.sub(r"'\w*EventId': '\d+'(, )?", "", line.partition(" ")[2])


async def with_converter(stage: Stage, converter: DataConverter, **options: Any) -> Stage:
    target = stage.client.service_client.config.target_host
    client = await Client.connect(target, data_converter=converter, **options)
    return Stage(client, stage.prefix)


@workflow.defn
class Everywhere:
    """Payloads in all places a codec has to find."""

    def __init__(self) -> None:
        self.go = False

    @workflow.run
    async def run(self, value: str) -> Any:
        workflow.set_current_details("details")
        workflow.upsert_memo({"memo": value})
        await workflow.sleep(0.01, summary="summary")
        found = [
            await workflow.execute_activity(
                echo_any, value, start_to_close_timeout=SECONDS, summary="s"
            ),
            await workflow.execute_local_activity(echo_any, value, start_to_close_timeout=SECONDS),
            await workflow.execute_child_workflow(
                Leaf.run, value, id=f"{workflow.info().workflow_id}-leaf", memo={"leaf": value}
            ),
            workflow.memo_value("memo"),
        ]
        workflow.patched("patched")
        try:
            await workflow.execute_activity(fails_with_details, start_to_close_timeout=SECONDS)
        except FailureError as error:
            found.append([str(error), str(error.cause)])
        await workflow.wait_condition(lambda: self.go)
        if value == "fail":
            raise ApplicationError("workflow secret", "detail", type="T")
        return found

    @workflow.signal
    def sig(self, value: str) -> None:
        self.go = value == "go"

    @workflow.query
    def ask(self, value: str) -> str:
        return f"asked {value}"

    @workflow.query
    def broken(self) -> str:
        raise ApplicationError("query secret")

    @workflow.update
    def upd(self, value: str) -> str:
        if value == "fail":
            raise ApplicationError("update secret", "d")
        return f"updated {value}"


@workflow.defn
class Leaf:
    @workflow.run
    async def run(self, value: str) -> str:
        return f"leaf {value}"


def _coded(name: str, converter: DataConverter) -> None:
    async def coded(stage: Stage) -> Any:
        own = await with_converter(stage, converter)
        async with own.worker([Everywhere, Leaf], [echo_any, fails_with_details]):
            found: list[Any] = []
            for value in ("value", "fail"):
                handle = await own.start(
                    Everywhere,
                    value,
                    suffix=value,
                    memo={"start": value},
                    static_summary="static",
                )
                await stage.until(handle, "ACTIVITY_TASK_FAILED")
                await handle.query(Everywhere.ask, "q")
                found += [
                    await outcome(handle.execute_update(Everywhere.upd, "u", id="u")),
                    await outcome(handle.execute_update(Everywhere.upd, "fail", id="f")),
                    await outcome(handle.query(Everywhere.ask, "q")),
                    await outcome(handle.query(Everywhere.broken)),
                ]
                await handle.signal(Everywhere.sig, "go")
                found.append(await outcome(handle.result()))
                history = await handle.fetch_history()
                kinds = ("DETAILS", "FAILED", "COMPLETED", "MARKER", "MODIFIED", "STARTED", "INITI")
                found.append(
                    [
                        _unnumbered(line)
                        for line in events(history.events)
                        if any(kind in line for kind in kinds)
                        and "WORKFLOW_TASK" not in line
                        and "'markerName': 'core_local" not in line
                    ]
                )
                found[-1].sort()
                replay = await Replayer(
                    workflows=[Everywhere], data_converter=converter
                ).replay_workflow(history, raise_on_replay_failure=False)
                found.append(str(replay.replay_failure))
            return found

    coded.__name__ = name
    scenario(coded)


class OwnFailures(DefaultFailureConverter):
    def to_failure(self, exception: BaseException, payload_converter: Any, failure: Any) -> None:
        super().to_failure(exception, payload_converter, failure)
        failure.message = f"own {failure.message}"


_coded("codec", DataConverter(payload_codec=Reverses()))
_coded(
    "encoded_failures",
    DataConverter(failure_converter_class=DefaultFailureConverterWithEncodedAttributes),
)
_coded(
    "encoded_failures_with_codec",
    DataConverter(
        payload_codec=Reverses(),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    ),
)
_coded("own_failures", DataConverter(failure_converter_class=OwnFailures))


class BrokenCodec(Reverses):
    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        raise RuntimeError("cannot decode")


@scenario
async def a_codec_that_fails(stage: Stage) -> Any:
    own = await with_converter(stage, DataConverter(payload_codec=BrokenCodec()))
    async with own.worker([Leaf]):
        handle = await own.start(Leaf, "x", task_timeout=timedelta(seconds=2))
        failed = await stage.until(
            stage.client.get_workflow_handle(handle.id), "WORKFLOW_TASK_FAILED"
        )
        attributes = failed[0].workflow_task_failed_event_attributes
        await handle.terminate()
        return [attributes.cause, attributes.failure.message]


class Model(BaseModel):
    name: str
    when: datetime
    inner: list[Inner] = []


class Inner(BaseModel):
    value: int


Model.model_rebuild()


@activity.defn
async def echo_model(model: Model) -> Model:
    return model.model_copy(update={"name": model.name + "!"})


@workflow.defn
class Pydantic:
    @workflow.run
    async def run(self, model: Model) -> list[Model]:
        return [
            await workflow.execute_activity(echo_model, model, start_to_close_timeout=SECONDS),
            await workflow.execute_local_activity(
                echo_model, model, start_to_close_timeout=SECONDS
            ),
        ]


@scenario
async def pydantic(stage: Stage) -> Any:
    own = await with_converter(stage, pydantic_data_converter)
    async with own.worker([Pydantic], [echo_model]):
        model = Model(name="m", when=datetime(2026, 1, 1, tzinfo=UTC), inner=[Inner(value=3)])
        handle = await own.start(Pydantic, model)
        return [str(await outcome(handle.result())), await own.history(handle)]


TRACE: dict[str, list[str]] = {}


def note(queue: str, text: str) -> None:
    TRACE.setdefault(queue, []).append(text)


class Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(Outbound(outbound))

    def _note(self, text: str) -> None:
        with workflow.unsafe.sandbox_unrestricted():
            if not workflow.unsafe.is_replaying():
                note(workflow.info().task_queue, text)

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        self._note(f"workflow {input.type.__name__} {sorted(input.headers)} {list(input.args)}")
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        self._note(f"signal {input.signal} {sorted(input.headers)}")
        await super().handle_signal(input)

    async def handle_query(self, input: HandleQueryInput) -> Any:
        with workflow.unsafe.sandbox_unrestricted():
            note(workflow.info().task_queue, f"query {input.query} {sorted(input.headers)}")
        return await super().handle_query(input)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:
        self._note(f"validator {input.update} {input.id}")
        super().handle_update_validator(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        self._note(f"update {input.update} {input.id} {sorted(input.headers)}")
        return await super().handle_update_handler(input)


class Outbound(WorkflowOutboundInterceptor):
    def _header(self, headers: Mapping[str, Payload]) -> dict[str, Payload]:
        own = workflow.payload_converter().to_payload("from the workflow")
        return {**headers, "own": own}

    def start_activity(self, input: StartActivityInput) -> Any:
        input.headers = self._header(input.headers)
        return super().start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> Any:
        input.headers = self._header(input.headers)
        return super().start_local_activity(input)

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> Any:
        input.headers = self._header(input.headers)
        return await super().start_child_workflow(input)

    def continue_as_new(self, input: Any) -> Any:
        input.headers = self._header(input.headers)
        return super().continue_as_new(input)

    async def signal_child_workflow(self, input: Any) -> None:
        input.headers = self._header(input.headers)
        return await super().signal_child_workflow(input)

    async def signal_external_workflow(self, input: Any) -> None:
        input.headers = self._header(input.headers)
        return await super().signal_external_workflow(input)


class ActivityInbound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        note(info.task_queue, f"activity {info.activity_type} {sorted(input.headers)}")
        return await super().execute_activity(input)


class Traces(Interceptor, ClientInterceptor):
    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return ActivityInbound(super().intercept_activity(next))

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor]:
        return Inbound

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return ClientOutbound(next)


class ClientOutbound(OutboundInterceptor):
    own: ClassVar[dict[str, Payload]] = {"client": Payload(data=b"x")}

    async def start_workflow(self, input: StartWorkflowInput) -> Any:
        input.headers = {**input.headers, **self.own}
        return await super().start_workflow(input)

    async def signal_workflow(self, input: Any) -> None:
        input.headers = {**input.headers, **self.own}
        return await super().signal_workflow(input)

    async def query_workflow(self, input: Any) -> Any:
        input.headers = {**input.headers, **self.own}
        return await super().query_workflow(input)

    async def start_workflow_update(self, input: Any) -> Any:
        input.headers = {**input.headers, **self.own}
        return await super().start_workflow_update(input)


@workflow.defn
class Intercepted:
    def __init__(self) -> None:
        self.got: list[str] = []

    @workflow.run
    async def run(self, turn: int) -> Any:
        if turn == 1:
            return "continued"
        await workflow.execute_activity(echo_any, 1, start_to_close_timeout=SECONDS)
        await workflow.execute_local_activity(echo_any, 1, start_to_close_timeout=SECONDS)
        child = await workflow.start_child_workflow(
            Signalled.run, id=f"{workflow.info().workflow_id}-child"
        )
        await child.signal(Signalled.sig, "child")
        await child
        await workflow.wait_condition(lambda: len(self.got) == 2)
        workflow.continue_as_new(1)

    @workflow.signal
    def sig(self, value: str) -> None:
        self.got.append(value)

    @workflow.query
    def ask(self) -> int:
        return len(self.got)

    @workflow.update
    def upd(self, value: str) -> int:
        self.got.append(value)
        return len(self.got)

    @upd.validator
    def check(self, value: str) -> None: ...


@workflow.defn
class Signalled:
    def __init__(self) -> None:
        self.done = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.done)

    @workflow.signal
    def sig(self, value: str) -> None:
        self.done = True


@scenario
async def interceptors(stage: Stage) -> Any:
    own = await with_converter(
        stage,
        DataConverter(payload_codec=Reverses()),
        interceptors=[Traces()],
        header_codec_behavior=HeaderCodecBehavior.CODEC,
    )
    async with own.worker([Intercepted, Signalled], [echo_any]):
        handle = await own.start(Intercepted, 0, suffix="i")
        await stage.until(handle, "CHILD_WORKFLOW_EXECUTION_COMPLETED")
        await handle.query(Intercepted.ask)
        await handle.execute_update(Intercepted.upd, "u", id="u")
        await handle.signal(Intercepted.sig, "s")
        await handle.query(Intercepted.ask)
        result = await outcome(handle.result())
        first = own.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
        return [
            result,
            sorted(TRACE[own.queue]),
            sorted(_unnumbered(line) for line in await own.history(first) if "eader" in line),
        ]


@scenario
async def opentelemetry(stage: Stage) -> Any:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    interceptor = TracingInterceptor(provider.get_tracer("parity"))
    own = await with_converter(stage, DataConverter.default, interceptors=[interceptor])
    async with own.worker([Intercepted, Signalled], [echo_any]):
        handle = await own.start(Intercepted, 0, suffix="o")
        await handle.execute_update(Intercepted.upd, "u", id="u")
        await handle.signal(Intercepted.sig, "s")
        await outcome(handle.result())
    spans = exporter.get_finished_spans()
    names = {span.context.span_id: span.name for span in spans if span.context}
    return sorted(
        f"{names.get(span.parent.span_id) if span.parent else None} -> {span.name}"
        for span in spans
    )


@workflow.defn
class RetriesActivity:
    @workflow.run
    async def run(self) -> Any:
        try:
            await workflow.execute_activity(
                fails_with_details,
                start_to_close_timeout=SECONDS,
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        except FailureError as error:
            cause = error.cause
            return (
                [cause.type, list(cause.details)] if isinstance(cause, ApplicationError) else None
            )
        return None


@scenario
async def failure_details(stage: Stage) -> Any:
    async with stage.worker([RetriesActivity], [fails_with_details]):
        return await stage.run(RetriesActivity)
