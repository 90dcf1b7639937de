"""Errors that several modules of the fleet share."""

from __future__ import annotations

from perdure.errors import CallerError

__all__ = ["InvalidSetting"]


class InvalidSetting(CallerError):
    """A setting of the fleet makes no sense. Found when it is given, never while running."""

    code = "fleet.invalid_setting"

    def __init__(self, setting: str, value: object, rule: str) -> None:
        super().__init__(f"{setting} cannot be {value!r}: {rule}")
        self.setting = setting
        self.value = value
        self.rule = rule
