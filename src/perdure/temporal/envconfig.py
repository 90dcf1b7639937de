"""Client profiles from a TOML file and environment variables.

The rules are those of the official SDKs: a profile of the file, overridden by variables
`TEMPORAL_*`. Results are plain dictionaries, which the SDK turns into its own classes; a table
that is there is shown even when it is empty, so that "TLS, with nothing special" differs from "not
said". Reading the file is `perdure.temporal.profile_file`'s part.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from perdure.temporal.profile_file import SOURCES, find_text, meta_key, parse
from perdure.temporal.sdk_errors import ConfigError

__all__ = ["build_module", "load_client_config", "load_client_connect_config"]

_DEFAULT_PROFILE = "default"
_META = "TEMPORAL_GRPC_META_"
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_SOURCE_NAMES = {
    "client_cert": "cert",
    "client_key": "key",
    "server_ca_cert": "server CA cert",
}


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
    text = find_text(path, data, _environment(env_vars))
    profiles = {} if text is None else parse(text, strict=config_file_strict)
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
    """One profile, with the overrides of the environment; raises `ConfigError`.

    Without the environment, its variables say no more than where the file is.
    """
    if path is not None and data is not None:
        raise ConfigError("Cannot specify both path and data for config source")
    if disable_file and disable_env:
        raise ConfigError("Invalid configuration: Cannot disable both file and environment loading")
    environment = _environment(env_vars)
    text = None if disable_file else find_text(path, data, environment)
    profiles = {} if text is None else parse(text, strict=config_file_strict)
    overrides: Mapping[str, str] = {} if disable_env else environment
    name = profile if profile is not None else overrides.get("TEMPORAL_PROFILE") or None
    if name is not None and name not in profiles and not disable_file:
        raise ConfigError(f"Profile '{name}' not found")
    result = dict(profiles.get(_DEFAULT_PROFILE if name is None else name, {}))
    _override(result, overrides)
    return _shown(result)


def _environment(given: Mapping[str, str] | None) -> Mapping[str, str]:
    if given is None:
        return os.environ
    if not isinstance(given, Mapping):
        raise TypeError(f"{type(given).__name__!r} object is not an instance of 'dict'")
    for item in (part for pair in given.items() for part in pair):
        if not isinstance(item, str):
            raise TypeError(f"{type(item).__name__!r} object is not an instance of 'str'")
    return given


def _override(profile: dict[str, Any], environment: Mapping[str, str]) -> None:
    for key in ("address", "namespace", "api_key"):
        if (value := environment.get(f"TEMPORAL_{key.upper()}")) is not None:
            profile[key] = value
    tls = _overridden_tls(profile.get("tls", {}), environment)
    if tls is not None:
        profile["tls"] = tls
    codec = {
        key: value
        for key in ("endpoint", "auth")
        if (value := environment.get(f"TEMPORAL_CODEC_{key.upper()}")) is not None
    }
    if codec:
        profile["codec"] = {**profile.get("codec", {}), **codec}
    meta = dict(profile.get("grpc_meta", {}))
    for variable, value in environment.items():
        if variable.startswith(_META):
            key = meta_key(variable.removeprefix(_META))
            meta.pop(key, None)
            if value:
                meta[key] = value
    profile["grpc_meta"] = meta


def _overridden_tls(tls: Mapping[str, Any], environment: Mapping[str, str]) -> Any:
    """The TLS table with the variables that say something about it, None if no one does.

    A boolean that cannot be read changes nothing, but still says that TLS was thought of.
    """
    said = {
        name: environment[variable]
        for name in ("", "_SERVER_NAME", "_DISABLE_HOST_VERIFICATION")
        if (variable := f"TEMPORAL_TLS{name}") in environment
    }
    result = dict(tls)
    if (enabled := _BOOLEANS.get(said.get("", "").lower())) is not None:
        result["disabled"] = not enabled
    if "_SERVER_NAME" in said:
        result["server_name"] = said["_SERVER_NAME"]
    unverified = _BOOLEANS.get(said.get("_DISABLE_HOST_VERIFICATION", "").lower())
    if unverified is not None:
        result["disable_host_verification"] = unverified
    sources = {source: _source(source, tls, environment) for source in SOURCES}
    result.update({source: value for source, value in sources.items() if value is not None})
    return result if said or any(sources.values()) else None


def _source(
    source: str, tls: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, str | bytes] | None:
    """What the environment says about a certificate or key, `{"path": …}` or `{"data": …}`."""
    names = {form: f"TEMPORAL_TLS_{source.upper()}_{form.upper()}" for form in ("path", "data")}
    given = [form for form, name in names.items() if name in environment]
    if len(given) > 1:
        raise ConfigError(
            f"Invalid configuration: Cannot specify both {names['path']} and {names['data']}"
        )
    if not given:
        return None
    (form,) = given
    other = "data" if form == "path" else "path"
    if other in tls.get(source, {}):
        what = _SOURCE_NAMES[source]
        raise ConfigError(
            f"Invalid configuration: Cannot specify {what} {form} via {names[form]} when {what} "
            f"{other} is already specified"
        )
    value = environment[names[form]]
    return {form: value.encode() if form == "data" else value}


def _shown(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The form the SDK reads."""
    shown = {key: value for key, value in profile.items() if key != "grpc_meta"}
    if profile.get("grpc_meta"):
        shown["grpc_meta"] = profile["grpc_meta"]
    if "tls" in profile:
        shown["tls"] = {"disabled": None, "disable_host_verification": False, **profile["tls"]}
    return shown
