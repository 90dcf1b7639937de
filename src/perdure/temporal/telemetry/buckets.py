"""Upper bounds of the buckets of every distribution that is exported.

The core's own metrics have bounds that fit them, all others the general ones. An override applies
to every metric whose name contains its key, the longest such key first; its bounds are taken as
they are, in the unit in which durations are exported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from perdure.temporal.telemetry.core_metrics import CATALOGUE, GENERAL_BUCKETS

__all__ = ["Buckets"]


class Buckets:
    """The bounds of one runtime; see the module. ValueError when an override does not rise."""

    def __init__(
        self, prefix: str, overrides: Mapping[str, Sequence[float]] | None, *, seconds: bool
    ) -> None:
        self._prefix = prefix
        self._scale = 1000 if seconds else 1
        self._overrides = sorted((overrides or {}).items(), key=lambda pair: -len(pair[0]))
        for key, bounds in self._overrides:
            if any(before >= after for before, after in pairwise(bounds)):
                raise ValueError(
                    f"the histogram bucket override of {key!r} must rise: {list(bounds)}"
                )

    def of(self, name: str) -> list[float]:
        """The bounds of the metric with this full name."""
        for key, bounds in self._overrides:
            if key in name:
                return [float(bound) for bound in bounds]
        metric = CATALOGUE.get(name.removeprefix(self._prefix))
        shown = GENERAL_BUCKETS if metric is None else metric.buckets
        return [bound / self._scale for bound in shown]
