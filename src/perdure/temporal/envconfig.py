"""Client profiles from a TOML file and environment variables.

The rules are those of the official SDKs: a profile of the file, overridden by variables
`TEMPORAL_*`. Results are plain dictionaries, which the SDK turns into its own classes.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from perdure.temporal.bridge.errors import ConfigError

__all__ = ["build_module", "load_client_config", "load_client_connect_config"]

_DEFAULT_PROFILE = "default"
_PROFILE_KEYS: Final = frozenset({"address", "namespace", "api_key", "tls", "codec", "grpc_meta"})
_SOURCES: Final = ("client_cert", "client_key", "server_ca_cert")
_TLS_KEYS: Final = frozenset(
    {"disabled", "server_name", "disable_host_verification"}
    | {f"{source}_{form}" for source in _SOURCES for form in ("path", "data")}
)
_CODEC_KEYS: Final = frozenset({"endpoint", "auth"})
_TRUE: Final = frozenset({"1", "true", "t", "yes", "y", "on"})
_FALSE: Final = frozenset({"0", "false", "f", "no", "n", "off"})


def build_module(name: str) -> ModuleType:
    """The submodule `envconfig` of the bridge."""
    module = ModuleType(name, __doc__)
    vars(module).update(
        ConfigError=ConfigError,
        load_client_config=load_client_config,
        load_client_connect_config=load_client_connect_config,
    )
    return module


def load_client_config(
    path: str | None,
    data: bytes | None,
    config_file_strict: bool,
    env_vars: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """All profiles of the file, by name; the environment only says where the file is.

    Raises `ConfigError`.
    """
    environment = os.environ if env_vars is None else env_vars
    profiles = _profiles(path, data, environment, strict=config_file_strict)
    return {name: _shown(profile) for name, profile in profiles.items()}


def load_client_connect_config(
    profile: str | None,
    path: str | None,
    data: bytes | None,
    disable_file: bool,
    disable_env: bool,
    config_file_strict: bool,
    env_vars: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """One profile, with the overrides of the environment; raises `ConfigError`."""
    if disable_file and disable_env:
        raise ConfigError("Cannot disable both file and environment loading")
    environment: Mapping[str, str] = {}
    if not disable_env:
        environment = os.environ if env_vars is None else env_vars
    profiles = {} if disable_file else _profiles(path, data, environment, strict=config_file_strict)
    name = profile or environment.get("TEMPORAL_PROFILE") or None
    if name is not None and name not in profiles and not disable_file:
        raise ConfigError(f"Profile '{name}' not found")
    result = dict(profiles.get(name or _DEFAULT_PROFILE, {}))
    _override(result, environment)
    return _shown(result)


def _profiles(
    path: str | None, data: bytes | None, environment: Mapping[str, str], *, strict: bool
) -> dict[str, dict[str, Any]]:
    if path is not None and data is not None:
        raise ConfigError("Cannot specify both a path and data")
    text = _text(path, data, environment)
    if text is None:
        return {}
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"Failed to parse TOML: {error}") from None
    if strict:
        _refuse_unknown(document, frozenset({"profile"}), "the file")
    profiles = document.get("profile", {})
    if not isinstance(profiles, dict):
        raise ConfigError("Failed to parse TOML: 'profile' is not a table")
    return {name: _profile(name, raw, strict=strict) for name, raw in profiles.items()}


def _text(path: str | None, data: bytes | None, environment: Mapping[str, str]) -> str | None:
    if data is not None:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ConfigError(f"Configuration data is not UTF-8: {error}") from None
    named = path or environment.get("TEMPORAL_CONFIG_FILE") or None
    file = Path(named) if named is not None else _default_path(environment)
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Failed to read {str(file)!r}: {error}") from None


def _default_path(environment: Mapping[str, str]) -> Path | None:
    if sys.platform == "win32":
        base = environment.get("APPDATA")
        folder = Path(base) if base else None
    elif sys.platform == "darwin":
        home = environment.get("HOME")
        folder = Path(home) / "Library" / "Application Support" if home else None
    else:
        base, home = environment.get("XDG_CONFIG_HOME"), environment.get("HOME")
        folder = Path(base) if base else Path(home) / ".config" if home else None
    return folder / "temporalio" / "temporal.toml" if folder is not None else None


def _profile(name: str, raw: Any, *, strict: bool) -> dict[str, Any]:
    where = f"profile '{name}'"
    raw = _table(raw, where)
    if strict:
        _refuse_unknown(raw, _PROFILE_KEYS, where)
    profile: dict[str, Any] = {}
    for key in ("address", "namespace", "api_key"):
        if key in raw:
            profile[key] = _string(raw[key], f"{where}, {key}")
    if "tls" in raw:
        profile["tls"] = _tls(raw["tls"], where, strict=strict)
    if "codec" in raw:
        codec = _table(raw["codec"], f"{where}, codec")
        if strict:
            _refuse_unknown(codec, _CODEC_KEYS, f"{where}, codec")
        profile["codec"] = {key: codec[key] for key in ("endpoint", "auth") if key in codec}
    if "grpc_meta" in raw:
        meta = _table(raw["grpc_meta"], f"{where}, grpc_meta")
        profile["grpc_meta"] = {
            _meta_key(key): _string(value, f"{where}, grpc_meta") for key, value in meta.items()
        }
    return profile


def _tls(raw: Any, where: str, *, strict: bool) -> dict[str, Any]:
    if isinstance(raw, bool):
        return {"disabled": not raw}
    raw = _table(raw, f"{where}, tls")
    if strict:
        _refuse_unknown(raw, _TLS_KEYS, f"{where}, tls")
    for source in _SOURCES:
        if f"{source}_path" in raw and f"{source}_data" in raw:
            raise ConfigError(f"Cannot specify both {source}_path and {source}_data")
    return {key: raw[key] for key in raw if key in _TLS_KEYS}


def _override(profile: dict[str, Any], environment: Mapping[str, str]) -> None:
    for key in ("address", "namespace", "api_key"):
        if value := environment.get(f"TEMPORAL_{key.upper()}"):
            profile[key] = value
    tls = dict(profile.get("tls", {}))
    _override_tls(tls, environment)
    if tls or "tls" in profile:
        profile["tls"] = tls
    codec = dict(profile.get("codec", {}))
    for key in ("endpoint", "auth"):
        if value := environment.get(f"TEMPORAL_CODEC_{key.upper()}"):
            codec[key] = value
    if codec:
        profile["codec"] = codec
    meta = dict(profile.get("grpc_meta", {}))
    prefix = "TEMPORAL_GRPC_META_"
    for variable, value in environment.items():
        if variable.startswith(prefix):
            key = _meta_key(variable.removeprefix(prefix))
            if value:
                meta[key] = value
            else:
                meta.pop(key, None)
    if meta or "grpc_meta" in profile:
        profile["grpc_meta"] = meta


def _override_tls(tls: dict[str, Any], environment: Mapping[str, str]) -> None:
    if value := environment.get("TEMPORAL_TLS"):
        tls["disabled"] = not _boolean(value, "TEMPORAL_TLS")
    if value := environment.get("TEMPORAL_TLS_SERVER_NAME"):
        tls["server_name"] = value
    if value := environment.get("TEMPORAL_TLS_DISABLE_HOST_VERIFICATION"):
        tls["disable_host_verification"] = _boolean(value, "TEMPORAL_TLS_DISABLE_HOST_VERIFICATION")
    for source in _SOURCES:
        path = environment.get(f"TEMPORAL_TLS_{source.upper()}_PATH")
        data = environment.get(f"TEMPORAL_TLS_{source.upper()}_DATA")
        if path and data:
            raise ConfigError(f"Cannot specify both {source} path and {source} data")
        if data:
            if f"{source}_path" in tls:
                raise ConfigError(
                    f"Cannot specify {source} data in the environment when the file gives a path"
                )
            tls[f"{source}_data"] = data
        elif path:
            if f"{source}_data" in tls:
                raise ConfigError(
                    f"Cannot specify {source} path in the environment when the file gives data"
                )
            tls[f"{source}_path"] = path


def _shown(profile: dict[str, Any]) -> dict[str, Any]:
    """The form the SDK reads: sources as `{"path": ...}` or `{"data": ...}`."""
    shown: dict[str, Any] = {
        key: profile[key] for key in ("address", "namespace", "api_key") if key in profile
    }
    if "tls" in profile:
        raw = profile["tls"]
        tls = {key: raw[key] for key in ("disabled", "server_name") if key in raw}
        for source in _SOURCES:
            for form in ("path", "data"):
                if f"{source}_{form}" in raw:
                    tls[source] = {form: raw[f"{source}_{form}"]}
        if raw.get("disable_host_verification"):
            tls["disable_host_verification"] = True
        shown["tls"] = tls
    if profile.get("codec"):
        shown["codec"] = profile["codec"]
    if "grpc_meta" in profile:
        shown["grpc_meta"] = {key: value for key, value in profile["grpc_meta"].items() if value}
    return shown


def _meta_key(key: str) -> str:
    return key.lower().replace("_", "-")


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"Failed to parse TOML: {where} is not a table")
    return value


def _string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"Failed to parse TOML: {where} is not a string")
    return value


def _boolean(value: str, where: str) -> bool:
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise ConfigError(f"Invalid boolean {value!r} in {where}")


def _refuse_unknown(table: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise ConfigError(f"unknown field in {where}: {', '.join(f'`{key}`' for key in unknown)}")
