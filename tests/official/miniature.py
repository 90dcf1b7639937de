"""A small folder in the manner of the official SDK's repository, for the tests of the script.

It has what the script must cope with: a package that would hide the installed one, session fixtures
that share one loop, helpers imported as `tests.helpers`, a download version for the server, a test
that starts a Python process, and tests that pass, fail, skip, hang, crash and cannot be imported.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

__all__ = ["write_miniature"]

_FILES = {
    "pyproject.toml": """
        [project]
        name = "temporalio"
        version = "{version}"

        [tool.pytest.ini_options]
        asyncio_mode = "auto"
        log_cli = true
        testpaths = ["tests"]
        timeout = 600
        timeout_func_only = true
        filterwarnings = ["error::temporalio.workflow.UnfinishedSignalHandlersWarning"]
    """,
    "temporalio/__init__.py": """
        raise ImportError("this package has no compiled core")
    """,
    "tests/__init__.py": """
        DEV_SERVER_DOWNLOAD_VERSION = "v0.0.0-no-such-version"
    """,
    "tests/helpers/__init__.py": """
        import uuid

        from temporalio.worker import Worker

        def new_worker(client, *workflows, activities=()):
            return Worker(
                client, task_queue=str(uuid.uuid4()), workflows=workflows, activities=activities
            )
    """,
    "tests/conftest.py": """
        import asyncio
        import os
        import sys

        import pytest
        import pytest_asyncio

        from temporalio.client import Client
        from temporalio.testing import WorkflowEnvironment
        from tests import DEV_SERVER_DOWNLOAD_VERSION
        from tests.helpers import new_worker

        def pytest_addoption(parser):
            parser.addoption("-E", "--workflow-environment", default="local")

        @pytest.fixture(scope="session")
        def event_loop():
            loop = asyncio.new_event_loop()
            yield loop
            loop.close()

        @pytest.fixture(scope="session")
        def env_type(request):
            return request.config.getoption("--workflow-environment")

        @pytest_asyncio.fixture(scope="session")
        async def env(env_type):
            if env_type == "local":
                env = await WorkflowEnvironment.start_local(
                    dev_server_extra_args=[
                        "--dynamic-config-value", "frontend.enableUpdateWorkflowExecution=true",
                    ],
                    dev_server_download_version=DEV_SERVER_DOWNLOAD_VERSION,
                    dev_server_log_level="never",
                )
            else:
                env = WorkflowEnvironment.from_client(await Client.connect(env_type))
            yield env
            await env.shutdown()

        @pytest_asyncio.fixture
        async def client(env):
            return env.client

        @pytest_asyncio.fixture(scope="session")
        async def worker(env):
            from tests.test_workflow import Hello

            async with new_worker(env.client, Hello) as worker:
                yield worker

        @pytest.hookimpl(hookwrapper=True, trylast=True)
        def pytest_cmdline_main(config):
            result = yield
            if result.get_result() == 0:
                os._exit(0)
            return result.get_result()
    """,
    "tests/test_workflow.py": """
        import uuid

        import pytest

        from temporalio import workflow

        @workflow.defn
        class Hello:
            @workflow.run
            async def run(self, name: str) -> str:
                return f"Hello, {name}!"

        @pytest.mark.parametrize("name", ["World", "Moon"])
        async def test_hello(client, worker, name):
            result = await client.execute_workflow(
                Hello.run, name, id=str(uuid.uuid4()), task_queue=worker.task_queue
            )
            assert result == f"Hello, {name}!"

        async def test_fails(client, worker):
            assert await client.service_client.check_health() is None

        async def test_skips(env_type):
            if env_type == "local":
                pytest.skip("not on a local server")
    """,
    "tests/test_cores.py": """
        import subprocess
        import sys

        import temporalio.bridge

        import pytest

        SHOW = "import temporalio.bridge as b; print(hasattr(b.temporal_sdk_bridge, '{mark}'))"

        def is_ours():
            return hasattr(temporalio.bridge.temporal_sdk_bridge, "{mark}")

        def test_child_has_the_same_core():
            out = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True)
            assert out.stdout.strip() == str(is_ours())

        def test_only_compiled():
            assert not is_ours(), "no sign of ours"

        def test_only_ours():
            assert is_ours()

        @pytest.fixture
        def broken():
            raise RuntimeError("no such luck")

        def test_error(broken):
            pass
    """,
    "tests/test_trouble.py": """
        import os
        import time
        from pathlib import Path

        import pytest

        def test_before():
            pass

        def test_crash():
            os._exit(7)

        @pytest.mark.timeout(1)
        def test_hang():
            time.sleep(600)

        def test_long():
            time.sleep(600)

        def test_flaky():
            mark = Path("flaky")
            if not mark.exists():
                mark.touch()
                pytest.fail("the first time")

        @pytest.mark.xfail
        def test_known():
            raise ValueError("as expected")
    """,
    "tests/contrib/test_absent.py": """
        import a_package_that_is_not_installed

        def test_never():
            pass
    """,
}


def write_miniature(root: Path, *, version: str = "") -> None:
    """Write it, as of the installed version of the SDK if no other is given."""
    version = version or importlib.metadata.version("temporalio")
    for name, text in _FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [line.removeprefix("        ") for line in text.strip("\n").splitlines()]
        filled = "\n".join(lines).rstrip() + "\n"
        filled = filled.replace("{version}", version).replace("{mark}", "__perdure_core__")
        path.write_text(filled, encoding="utf-8")
