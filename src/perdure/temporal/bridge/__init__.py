"""The surface of the SDK's extension module, made of ours.

Here are only the objects that the SDK holds: runtime, client, workers. What they are made of has
packages of its own beside this one: `connection`, `telemetry`, `slots`, `worker`.
"""

from __future__ import annotations

import os
from types import ModuleType

__all__ = ["build_module"]


def build_module(name: str) -> ModuleType:
    """A module with every name the official SDK imports from its core."""
    # Else gRPC writes lines of its own to standard error for every lost server and every fork.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # gRPC's support of forks starts its threads again in the child, which crash there now and then,
    # and with them the processes of a pool that runs activities. Nothing of ours works in a fork.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from perdure.temporal import envconfig, ephemeral, sdk_errors
    from perdure.temporal.bridge import client, runtime, worker
    from perdure.temporal.slots import contexts
    from perdure.temporal.telemetry import logs, metrics

    module = ModuleType(name, "The perdure core, in the place of the compiled one.")
    vars(module).update(
        FIPS=False,
        RPCError=sdk_errors.RPCError,
        PollShutdownError=sdk_errors.PollShutdownError,
        init_runtime=runtime.init_runtime,
        raise_in_thread=runtime.raise_in_thread,
        RuntimeRef=runtime.RuntimeRef,
        BufferedLogEntry=logs.BufferedLogEntry,
        new_metric_meter=runtime.new_metric_meter,
        MetricMeterRef=metrics.MetricMeterRef,
        MetricAttributesRef=metrics.MetricAttributesRef,
        MetricCounterRef=metrics.MetricCounterRef,
        MetricHistogramRef=metrics.MetricHistogramRef,
        MetricHistogramFloatRef=metrics.MetricHistogramFloatRef,
        MetricHistogramDurationRef=metrics.MetricHistogramDurationRef,
        MetricGaugeRef=metrics.MetricGaugeRef,
        MetricGaugeFloatRef=metrics.MetricGaugeFloatRef,
        BufferedMetric=metrics.BufferedMetric,
        BufferedMetricUpdate=metrics.BufferedMetricUpdate,
        connect_client=client.connect_client,
        ClientRef=client.ClientRef,
        new_worker=worker.new_worker,
        new_replay_worker=worker.new_replay_worker,
        WorkerRef=worker.WorkerRef,
        HistoryPusher=worker.HistoryPusher,
        CustomSlotSupplier=contexts.CustomSlotSupplier,
        SlotReserveCtx=contexts.SlotReserveCtx,
        SlotMarkUsedCtx=contexts.SlotMarkUsedCtx,
        SlotReleaseCtx=contexts.SlotReleaseCtx,
        WorkflowSlotInfo=contexts.WorkflowSlotInfo,
        ActivitySlotInfo=contexts.ActivitySlotInfo,
        LocalActivitySlotInfo=contexts.LocalActivitySlotInfo,
        start_dev_server=ephemeral.start_dev_server,
        start_test_server=ephemeral.start_test_server,
        EphemeralServerRef=ephemeral.EphemeralServerRef,
        envconfig=envconfig.build_module(f"{name}.envconfig"),
    )
    return module
