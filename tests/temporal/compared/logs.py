"""What filters let through, and how every format writes it, on the console of a runtime."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile

from temporalio.runtime import (
    LoggingConfig,
    LoggingFormat,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)

FILTERS = (
    "",
    "off",
    "INFO",
    "5",
    "warn,temporal_sdk_bridge=debug",
    "temporal_sdk_bridge::runtime=info",
    "temporal_sdk=debug",
    "temporal_sdk_bridge",
    "something_else",
    "temporal_sdk_bridge=off,debug",
    "debug,temporal_sdk_bridge::runtime=error,temporal_sdk_bridge=debug",
    ",info,",
    "a=nonsense,info",
    "trace,temporal_sdk_bridge[span]=info",
    TelemetryFilter("DEBUG", "ERROR").formatted(),
    TelemetryFilter("INFO", "OFF").formatted(),
)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
STYLE = re.compile("\x1b\\[[0-9;]*m")


def written(config: LoggingConfig) -> str:
    """What a runtime with this configuration writes to the standard output."""
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            runtime = Runtime(telemetry=TelemetryConfig(logging=config))._core_runtime
            runtime.write_test_info_log("information", 'some "data"\nand more')
            runtime.write_test_debug_log("for debugging", "other data")
            sys.stdout.flush()
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return STYLE.sub("", TIME.sub("TIME", file.read().decode()))


if __name__ == "__main__":
    found = {text: written(LoggingConfig(filter=text)) for text in FILTERS}
    for form in LoggingFormat:
        found[form.value] = written(LoggingConfig(filter="debug", format=form))
    sys.stdout.write(json.dumps(found))
