"""The file of client profiles: where it is, and what it may say.

A profile comes out as the dictionary the SDK reads, except for defaults. Wrong types are always
refused; unknown keys only in strict mode, so that a file may be newer than the program.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from perdure.temporal.sdk_errors import ConfigError

__all__ = ["SOURCES", "find_text", "meta_key", "parse"]

SOURCES: Final = ("client_cert", "client_key", "server_ca_cert")
_PROFILE_KEYS: Final = ("address", "namespace", "api_key", "tls", "codec", "grpc_meta")
_TLS_KEYS: Final = (
    "disabled",
    *(f"{source}_{form}" for source in SOURCES for form in ("path", "data")),
    "server_name",
    "disable_host_verification",
)
_CODEC_KEYS: Final = ("endpoint", "auth")
_POSITION: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def find_text(path: str | None, data: bytes | None, environment: Mapping[str, str]) -> str | None:
    """The text of the file, None when there is none; raises `ConfigError`."""
    if path is not None and data is not None:
        raise ConfigError("Cannot specify both path and data for config source")
    if data is None:
        data = _read(path, environment)
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        fault = (
            f"incomplete utf-8 byte sequence from index {error.start}"
            if error.end == len(data) and error.reason == "unexpected end of data"
            else f"invalid utf-8 sequence of {error.end - error.start} bytes "
            f"from index {error.start}"
        )
        raise ConfigError(f"Configuration loading error: {fault}") from None


def _read(path: str | None, environment: Mapping[str, str]) -> bytes | None:
    named = path if path is not None else environment.get("TEMPORAL_CONFIG_FILE") or None
    file = Path(named) if named is not None else _default_path()
    if named == "" or file is None or not file.exists():
        return None
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"Configuration loading error: {error.strerror} (os error {error.errno})"
        ) from None


def _default_path() -> Path | None:
    """The file in the user's folder of configurations, which is the process's own affair.

    Variables a caller passes instead of the environment do not move it.
    """
    if sys.platform == "win32":
        base = os.environ.get("APPDATA")
        folder = Path(base) if base else None
    elif sys.platform == "darwin":
        folder = _at_home("Library/Application Support")
    else:
        named = Path(os.environ.get("XDG_CONFIG_HOME", ""))
        folder = named if named.is_absolute() else _at_home(".config")
    return folder / "temporalio" / "temporal.toml" if folder is not None else None


def _at_home(folder: str) -> Path | None:
    try:
        return Path.home() / folder
    except RuntimeError:  # a user id that nobody has given a name or a home
        return None


def parse(text: str, *, strict: bool) -> dict[str, dict[str, Any]]:
    """The profiles by name; raises `ConfigError`."""
    try:
        document = tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(str(error), text) from None
    if strict:
        _refuse_unknown(document, ("profile",), "")
    profiles = _typed(document.get("profile", {}), dict, "profile", "a map")
    return {name: _profile(raw, f"profile.{name}", strict=strict) for name, raw in profiles.items()}


def meta_key(key: str) -> str:
    """A header's name in its normal form."""
    return key.lower().replace("_", "-")


def _profile(raw: Any, where: str, *, strict: bool) -> dict[str, Any]:
    raw = _typed(raw, dict, where, "a table of a profile")
    if strict:
        _refuse_unknown(raw, _PROFILE_KEYS, where)
    profile: dict[str, Any] = {
        key: _string(raw[key], f"{where}.{key}")
        for key in ("address", "namespace", "api_key")
        if key in raw
    }
    if "tls" in raw:
        profile["tls"] = _tls(raw["tls"], f"{where}.tls", strict=strict)
    if "codec" in raw:
        codec = _typed(raw["codec"], dict, f"{where}.codec", "a table of a codec")
        if strict:
            _refuse_unknown(codec, _CODEC_KEYS, f"{where}.codec")
        profile["codec"] = {
            key: _string(codec[key], f"{where}.codec.{key}") for key in _CODEC_KEYS if key in codec
        }
    if "grpc_meta" in raw:
        meta = _typed(raw["grpc_meta"], dict, f"{where}.grpc_meta", "a map")
        profile["grpc_meta"] = {
            meta_key(key): _string(value, f"{where}.grpc_meta.{key}") for key, value in meta.items()
        }
    return profile


def _tls(raw: Any, where: str, *, strict: bool) -> dict[str, Any]:
    raw = _typed(raw, dict, where, "a table of TLS settings")
    if strict:
        _refuse_unknown(raw, _TLS_KEYS, where)
    tls: dict[str, Any] = {
        key: _typed(raw[key], bool, f"{where}.{key}", "a boolean")
        for key in ("disabled", "disable_host_verification")
        if key in raw
    }
    if "server_name" in raw:
        tls["server_name"] = _string(raw["server_name"], f"{where}.server_name")
    for source in SOURCES:
        path, data = f"{source}_path", f"{source}_data"
        if path in raw and data in raw:
            raise ConfigError(f"Invalid configuration: Cannot specify both {path} and {data}")
        if path in raw:
            tls[source] = {"path": _string(raw[path], f"{where}.{path}")}
        elif data in raw and (text := _string(raw[data], f"{where}.{data}")):
            tls[source] = {"data": text.encode()}
    return tls


def _string(value: Any, where: str) -> str:
    return str(_typed(value, str, where, "a string"))


def _typed(value: Any, kind: type, where: str, expected: str) -> Any:
    if not isinstance(value, kind):
        raise _fault(f"invalid type: {_named(value)}, expected {expected}", where)
    return value


def _named(value: Any) -> str:
    match value:
        case bool():
            return f"boolean `{str(value).lower()}`"
        case int():
            return f"integer `{value}`"
        case float():
            return f"floating point `{value}`"
        case str():
            return f'string "{value}"'
        case list():
            return "sequence"
        case _:
            return "map"


def _refuse_unknown(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            names = [f"`{name}`" for name in known]
            expected = " or ".join(names) if len(names) < 3 else f"one of {', '.join(names)}"
            raise _fault(f"unknown field `{key}`, expected {expected}", where)


def _fault(text: str, where: str) -> ConfigError:
    place = f" in `{where}`" if where else ""
    return ConfigError(f"Configuration loading error: TOML parse error{place}\n{text}\n")


def _syntax_error(text: str, document: str) -> ConfigError:
    position = _POSITION.search(text)
    lines = document.split("\n")
    line, column = len(lines), len(lines[-1]) + 1
    if position is not None and position[1] is not None:
        line, column = int(position[1]), int(position[2])
    margin = " " * len(str(line))
    return ConfigError(
        f"Configuration loading error: TOML parse error at line {line}, column {column}\n"
        f"{margin} |\n{line} | {lines[line - 1]}\n{margin} | {' ' * (column - 1)}^\n"
        f"{_POSITION.sub('', text)}\n"
    )
