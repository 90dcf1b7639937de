"""A pytest plugin: `pytest -p perdure.temporal.pytest_plugin` runs a suite on our core.

It installs while pytest loads plugins, before any conftest can import the official SDK.
"""

from perdure.temporal.install import install

__all__: list[str] = []

install()
