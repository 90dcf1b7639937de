"""Prints what `envconfig` makes of files times variables times profiles.

Where a TOML fault is worded is the parser's own affair, so those texts are cut short.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from temporalio.bridge.temporal_sdk_bridge import (  # type: ignore[import-not-found]
    envconfig,
)

TLS_PATHS = """client_cert_path = 'a'
client_key_path = 'b'
server_ca_cert_path = 'c'
server_name = 'n'
disable_host_verification = true
"""
TWO = """
[profile.default]
address = 'd:1'
[profile.cloud]
address = 'c:1'
api_key = 'k'
namespace = 'n'
[profile.cloud.tls]
server_name = 's'
client_cert_data = 'cc'
client_key_path = 'kk'
[profile.cloud.grpc_meta]
Some_Key = 'v'
empty = ''
"""

WHOLE_FILES = [
    "",
    TWO,
    "[profile",
    "a = ",
    "profile = 1",
    "[profile]",
    "[[profile]]\naddress = 'x'",
    "[profile]\ndefault = 1",
    "other = 1",
    "[other.thing]\na = 1",
    "[profile.other]\nzz = 1\n[profile.default]\naddress = 'x'",
    "[profile.cloud]\naddress = 'c:1'",
    "[profile.'']\naddress = 'e'",
    "[profile.Cloud]\naddress = 'c:1'",
    "[profile.'ä']\naddress = 'ü:1'",
    "profile.default.address = 'x'\nprofile.default.tls.disabled = false",
    "profile = {default = {address = 'x', tls = {disabled = true}}}",
    "\ufeff[profile.default]\r\naddress = 'x'\r\n",
    "[profile.default]\naddress = 'x'\naddress = 'y'",
    "[profile.default]\naddress = 1",
    "[profile.default]\nadress = 'x'",
    "[profile.default]\nnamespace = true",
    "[profile.default]\napi_key = ['a']",
    "[profile.default]\naddress = 2020-01-01",
    "[profile.default]\naddress = ''\nnamespace = ''\napi_key = ''",
    "[profile.default]\napi_key = 'k'",
    "[profile.default]\ntls = true",
    "[profile.default]\ntls = 'yes'",
    "[profile.default]\ncodec = 'x'",
    "[profile.default]\ngrpc_meta = 'x'",
    "[profile.default.codec]",
    "[profile.default.codec]\nendpoint = 'e'\nauth = 'a'",
    "[profile.default.codec]\nendpoint = ''",
    "[profile.default.codec]\nendpoint = 1",
    "[profile.default.codec]\nend = 'x'",
    "[profile.default.grpc_meta]",
    "[profile.default.grpc_meta]\nSome_Key = 'v'\nother-key = 'w'\nempty = ''\n'X-Y_Z' = 'q'",
    "[profile.default.grpc_meta]\na = ''",
    "[profile.default.grpc_meta]\na = 1",
]
TLS_TABLES = [
    "",
    "disabled = true",
    "disabled = false",
    "disabled = 'true'",
    TLS_PATHS,
    TLS_PATHS.replace("_path", "_data").replace("true", "false"),
    *(f"{s}_path = 'a'\n{s}_data = 'b'" for s in ("client_cert", "client_key", "server_ca_cert")),
    "client_cert_path = ''\nclient_cert_data = 'b'",
    "client_cert_path = ''",
    "client_cert_data = ''",
    "client_cert_data = [1, 2]",
    "client_cert_path = 1",
    "client_key_data = '''a\nb'''",
    "server_name = ''",
    "server_name = 1",
    "servername = 'x'",
    "disable_host_verification = 'x'",
]
FILES = [*WHOLE_FILES, *(f"[profile.default.tls]\n{table}" for table in TLS_TABLES)]
BOOLEANS = ["true", "false", "1", "0", "TRUE", "False", "t", "yes", "off", "maybe", "", " true "]
VARIABLES: list[dict[str, str]] = [
    {},
    {"TEMPORAL_ADDRESS": "ea:1"},
    {"TEMPORAL_NAMESPACE": "en", "TEMPORAL_API_KEY": "ek"},
    {"TEMPORAL_ADDRESS": "", "TEMPORAL_NAMESPACE": "", "TEMPORAL_API_KEY": ""},
    *({"TEMPORAL_TLS": value} for value in BOOLEANS),
    *({"TEMPORAL_TLS_DISABLE_HOST_VERIFICATION": value} for value in BOOLEANS),
    {"TEMPORAL_TLS_SERVER_NAME": "es"},
    {"TEMPORAL_TLS_SERVER_NAME": ""},
    *(
        {f"TEMPORAL_TLS_{source}_{form}": value for form, value in forms.items()}
        for source in ("CLIENT_CERT", "CLIENT_KEY", "SERVER_CA_CERT")
        for forms in (
            {"PATH": "p"},
            {"PATH": ""},
            {"DATA": "d"},
            {"DATA": ""},
            {"PATH": "p", "DATA": "d"},
            {"PATH": "", "DATA": "d"},
        )
    ),
    {"TEMPORAL_TLS_CERT_PATH": "y", "TEMPORAL_TLS_KEY_PATH": "z"},
    {"TEMPORAL_CODEC_ENDPOINT": "ce"},
    {"TEMPORAL_CODEC_AUTH": ""},
    {"TEMPORAL_GRPC_META_SOME_KEY": "em"},
    {"TEMPORAL_GRPC_META_SOME_KEY": ""},
    {"TEMPORAL_GRPC_META_A": ""},
    {"TEMPORAL_GRPC_META_": "x"},
    {"TEMPORAL_GRPC_META_a-b": "x"},
    {"TEMPORAL_GRPC_META_NEW": "n", "TEMPORAL_GRPC_META_EMPTY": "q"},
    *({"TEMPORAL_PROFILE": name} for name in ("cloud", "nope", "", "default")),
]


def outcome(load: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return load(*arguments)
    except Exception as error:
        text = str(error)
        if "TOML parse error" in text:
            text = text[: text.index("TOML parse error")]
            fault = str(error).rstrip().rsplit("\n", 1)[-1]
            if fault.startswith("unknown field"):
                text += fault
        return [type(error).__name__, text]


def files_and_variables() -> Iterator[tuple[str, Any]]:
    one, every = envconfig.load_client_connect_config, envconfig.load_client_config
    for text in FILES:
        data = text.encode()
        for strict in (False, True):
            yield f"all {text} strict={strict}", outcome(every, None, data, strict, {})
        for variables in VARIABLES:
            for profile in (None, "cloud", "default", ""):
                yield (
                    f"{profile} of {text} with {variables}",
                    outcome(one, profile, None, data, False, False, False, variables),
                )
        for without_file, without_variables in ((False, True), (True, False), (True, True)):
            for profile in (None, "cloud"):
                yield (
                    f"{profile} of {text} {without_file} {without_variables}",
                    outcome(
                        one,
                        profile,
                        None,
                        data,
                        without_file,
                        without_variables,
                        True,
                        {"TEMPORAL_ADDRESS": "ea:1", "TEMPORAL_PROFILE": "cloud"},
                    ),
                )


def pairs_of_variables() -> Iterator[tuple[str, Any]]:
    one = envconfig.load_client_connect_config
    for text in ("", TWO, f"[profile.default.tls]\n{TLS_PATHS}"):
        for first, second in itertools.combinations(VARIABLES, 2):
            variables = {**second, **first}
            yield (
                f"{text} with {variables}",
                outcome(one, None, None, text.encode(), False, False, True, variables),
            )


def paths(folder: Path) -> Iterator[tuple[str, Any]]:
    one, every = envconfig.load_client_connect_config, envconfig.load_client_config
    home = folder / "home"
    (home / ".config" / "temporalio").mkdir(parents=True, exist_ok=True)
    (home / ".config" / "temporalio" / "temporal.toml").write_text(TWO)
    named, strange = folder / "named.toml", folder / "strange.toml"
    named.write_text("[profile.named]")
    strange.write_bytes(b"\xff\xfe[")
    os.environ.pop("XDG_CONFIG_HOME", None)
    os.environ["HOME"] = str(home)
    places = [str(named), str(folder / "missing"), str(folder), str(strange), "", f"{named}/below"]
    for path in (None, *places):
        for place in (None, *places):
            variables = {} if place is None else {"TEMPORAL_CONFIG_FILE": place}
            yield f"{path} or {place}", outcome(every, path, None, False, variables)
            for off in ((False, False), (False, True), (True, False)):
                yield (
                    f"{path} or {place} off={off}",
                    outcome(one, None, path, None, *off, False, variables),
                )
    yield "both", outcome(every, str(named), b"", False, {})
    yield "both of one", outcome(one, None, str(named), b"", True, True, False, {})
    yield "home of the caller", outcome(every, None, None, False, {"HOME": "/elsewhere"})
    for raw in (b"\xf0\x9f", b"abc\xf0\x9fA", b"\xff"):
        yield f"data {raw!r}", outcome(every, None, raw, False, {})
    wrongs: list[Any] = [5, "x", [], {"a": 1}]
    for wrong in wrongs:
        yield f"variables {wrong!r}", outcome(every, None, b"", False, wrong)


answers = {
    **dict(files_and_variables()),
    **dict(pairs_of_variables()),
    **dict(paths(Path(sys.argv[1]))),
}
json.dump(answers, sys.stdout, default=repr)
