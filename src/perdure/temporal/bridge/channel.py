"""One gRPC channel per event loop, made from the client's configuration.

A client of the official SDK may be used from any loop, a channel of grpc.aio belongs to one; so
channels are made at first use in a loop and dropped with it.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import grpc
import grpc.aio

if TYPE_CHECKING:
    from temporalio.bridge.client import ClientConfig, ClientTlsConfig

__all__ = ["Channels"]

_LARGEST_ANSWER = 128 * 1024 * 1024


class Channels:
    """The channels of one client, by loop."""

    def __init__(self, config: ClientConfig) -> None:
        url = urlsplit(config.target_url)
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise ValueError(f"invalid target URL {config.target_url!r}")
        port = url.port or (443 if url.scheme == "https" else 80)
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        self._target = f"{host}:{port}"
        self._secure = url.scheme == "https" or config.tls_config is not None
        self._config = config
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, grpc.aio.Channel] = (
            weakref.WeakKeyDictionary()
        )

    def get(self) -> grpc.aio.Channel:
        """The channel of the running loop."""
        loop = asyncio.get_running_loop()
        channel = self._by_loop.get(loop)
        if channel is None:
            channel = self._by_loop[loop] = self._open()
        return channel

    def _open(self) -> grpc.aio.Channel:
        options = _options(self._config)
        compression = (
            grpc.Compression.Gzip
            if self._config.grpc_compression == "gzip"
            else grpc.Compression.NoCompression
        )
        if not self._secure:
            return grpc.aio.insecure_channel(self._target, options=options, compression=compression)
        return grpc.aio.secure_channel(
            self._target,
            _credentials(self._config.tls_config),
            options=options,
            compression=compression,
        )


def _credentials(tls: ClientTlsConfig | None) -> grpc.ChannelCredentials:
    if tls is None:
        return grpc.ssl_channel_credentials()
    return grpc.ssl_channel_credentials(
        tls.server_root_ca_cert or None, tls.client_private_key, tls.client_cert
    )


def _options(config: ClientConfig) -> list[tuple[str, str | int]]:
    options: list[tuple[str, str | int]] = [
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_send_message_length", -1),
        (
            "grpc.max_receive_message_length",
            int(os.environ.get("TEMPORAL_MAX_INCOMING_GRPC_BYTES", _LARGEST_ANSWER)),
        ),
        ("grpc.primary_user_agent", f"{config.client_name}/{config.client_version}"),
    ]
    if config.keep_alive_config is not None:
        options += [
            ("grpc.keepalive_time_ms", config.keep_alive_config.interval_millis),
            ("grpc.keepalive_timeout_ms", config.keep_alive_config.timeout_millis),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
        ]
    if config.http_connect_proxy_config is not None:
        options.append(("grpc.http_proxy", _proxy(config)))
    else:
        options.append(("grpc.enable_http_proxy", 0))
        if config.dns_load_balancing_config is not None:
            millis = config.dns_load_balancing_config.resolution_interval_millis
            options += [
                ("grpc.lb_policy_name", "round_robin"),
                ("grpc.dns_min_time_between_resolutions_ms", millis),
            ]
    tls = config.tls_config
    if tls is not None and (name := tls.verification_server_name or tls.domain):
        options.append(("grpc.ssl_target_name_override", name))
    return options


def _proxy(config: ClientConfig) -> str:
    proxy = config.http_connect_proxy_config
    assert proxy is not None
    if proxy.basic_auth is None:
        return f"http://{proxy.target_host}"
    user, password = (quote(part, safe="") for part in proxy.basic_auth)
    return f"http://{user}:{password}@{proxy.target_host}"
