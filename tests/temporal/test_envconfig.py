"""Client profiles through the official `temporalio.envconfig`."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.envconfig import ClientConfig, ClientConfigProfile
from temporalio.service import TLSConfig
from tests.temporal.support.cores import on_both_cores

from perdure.temporal.sdk_errors import ConfigError

FILE = """
[profile.default]
address = "default:7233"
namespace = "space"
[profile.default.grpc_meta]
Some_Key = "value"
empty = ""
[profile.cloud]
address = "cloud:7233"
api_key = "secret"
[profile.cloud.tls]
server_name = "name"
client_cert_data = "cert"
client_key_data = "key"
"""


def load(profile: str | None = None, text: str = FILE, **variables: str) -> ClientConfigProfile:
    return ClientConfigProfile.load(profile, config_source=text, override_env_vars=variables)


def test_the_default_profile() -> None:
    config = load().to_client_connect_config()
    assert config == {
        "target_host": "default:7233",
        "namespace": "space",
        "rpc_metadata": {"some-key": "value", "empty": ""},
    }


def test_a_named_profile_with_tls() -> None:
    config = load("cloud").to_client_connect_config()
    assert config["api_key"] == "secret"
    assert config["tls"] == TLSConfig(domain="name", client_cert=b"cert", client_private_key=b"key")


def test_the_environment_chooses_the_profile() -> None:
    assert load(TEMPORAL_PROFILE="cloud").address == "cloud:7233"


def test_variables_override_the_file() -> None:
    profile = load(
        TEMPORAL_ADDRESS="other:1",
        TEMPORAL_NAMESPACE="elsewhere",
        TEMPORAL_API_KEY="key",
        TEMPORAL_TLS="false",
        TEMPORAL_GRPC_META_SOME_KEY="",
        TEMPORAL_GRPC_META_EMPTY="",
        TEMPORAL_GRPC_META_NEW="new",
    )
    assert profile.address == "other:1"
    assert profile.namespace == "elsewhere"
    assert profile.api_key == "key"
    assert profile.tls is not None
    assert profile.tls.disabled is True
    assert profile.grpc_meta == {"new": "new"}


def test_a_missing_named_profile_is_an_error() -> None:
    with pytest.raises(ConfigError, match="Profile 'other' not found"):
        load("other")


def test_a_missing_default_profile_is_empty() -> None:
    assert load(text="") == ClientConfigProfile()


def test_file_and_environment_cannot_both_be_off() -> None:
    with pytest.raises(RuntimeError, match="Cannot disable both file and environment loading"):
        ClientConfigProfile.load(disable_file=True, disable_env=True)


@pytest.mark.parametrize(
    "text",
    [
        "other = 1",
        "[profile.default]\nadress = 'x'",
        "[profile.default.tls]\nservername = 'x'",
    ],
)
def test_strict_loading_refuses_unknown_keys(text: str) -> None:
    load(text=text)
    with pytest.raises(ConfigError, match="unknown field"):
        ClientConfigProfile.load(config_source=text, config_file_strict=True, override_env_vars={})


@pytest.mark.parametrize(
    "text",
    ["[profile", "profile = 1", "[profile.default]\naddress = 1", "[profile]\ndefault = 1"],
)
def test_a_malformed_file_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="Configuration loading error: TOML parse error"):
        load(text=text)


def test_path_and_data_of_one_source_contradict() -> None:
    text = "[profile.default.tls]\nclient_cert_path = 'a'\nclient_cert_data = 'b'"
    with pytest.raises(ConfigError, match="client_cert"):
        load(text=text)
    with pytest.raises(ConfigError, match="both TEMPORAL_TLS_CLIENT_KEY_PATH and"):
        load(TEMPORAL_TLS_CLIENT_KEY_PATH="a", TEMPORAL_TLS_CLIENT_KEY_DATA="b")
    with pytest.raises(ConfigError, match="key path via TEMPORAL_TLS_CLIENT_KEY_PATH when key"):
        load("cloud", TEMPORAL_TLS_CLIENT_KEY_PATH="a")


def test_the_file_is_found_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "named.toml"
    named.write_text(FILE)
    variables = {"TEMPORAL_CONFIG_FILE": str(named)}
    assert set(ClientConfig.load(override_env_vars=variables).profiles) == {"default", "cloud"}
    missing = {"TEMPORAL_CONFIG_FILE": str(tmp_path / "missing.toml")}
    assert ClientConfig.load(override_env_vars=missing).profiles == {}
    home = tmp_path / "temporalio"
    home.mkdir()
    (home / "temporal.toml").write_text(FILE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = ClientConfig.load(override_env_vars={})
    assert set(found.profiles) == {"default", "cloud"}
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ClientConfig.load(override_env_vars={"HOME": "/elsewhere"}).profiles == {}
    (tmp_path / ".config").symlink_to(tmp_path)
    assert set(ClientConfig.load(override_env_vars={}).profiles) == {"default", "cloud"}


def test_a_position_is_named_for_broken_toml() -> None:
    with pytest.raises(ConfigError, match=r"at line 2, column 5\n  \|\n2 \| a = \n  \|     \^\n"):
        load(text="b = 1\na = ")


def test_a_header_named_twice_has_its_last_value() -> None:
    """Which of the two wins is by chance in the compiled core."""
    text = "[profile.default.grpc_meta]\nA_B = 'first'\na-b = 'second'"
    assert load(text=text).grpc_meta == {"a-b": "second"}


def test_every_combination_loads_as_on_the_compiled_core(tmp_path: Path) -> None:
    """A table of files, variables and paths on both cores; only TOML faults differ in words."""
    compiled, ours = on_both_cores("envconfig_table.py", str(tmp_path), one_by_one=True)
    assert len(ours) > 10_000
    assert {key: value for key, value in ours.items() if value != compiled[key]} == {}
