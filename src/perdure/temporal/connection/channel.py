"""One gRPC channel per event loop, made from the client's configuration.

A client of the official SDK may be used from any loop, a channel of grpc.aio belongs to one; so
channels are made at first use in a loop. They are dropped when another loop needs one and theirs
is closed: a channel holds its loop, so nobody else would ever let go of either. With load balancing
by DNS, a channel is also replaced when its host name has got other addresses; calls keep the
channel they began on.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import grpc
import grpc.aio

from perdure.temporal.connection.name_watch import NameWatch
from perdure.temporal.connection.target import Target, parse_target
from perdure.temporal.connection.tls import credentials, flaw_of, tls_options
from perdure.temporal.process import grpc_process

if TYPE_CHECKING:
    from temporalio.bridge.client import ClientConfig, ClientHttpConnectProxyConfig

__all__ = ["CannotConnect", "Channels"]

_LARGEST_ANSWER = 128 * 1024 * 1024
# What a server is told it may answer with: bit 0 is no compression, bit 2 gzip.
_ALGORITHMS = {"none": 0b001, "gzip": 0b101}
# Calls fail at once while the server is away, so its return must be noticed soon.
_FIRST_RECONNECT_MILLIS = 100
_LONGEST_RECONNECT_MILLIS = 1000
_UNDECIDED = (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING)


class CannotConnect(Exception):
    """There is no connection; the SDK sees the text in a RuntimeError."""


@dataclass(slots=True)
class _Link:
    channel: grpc.aio.Channel
    watch: NameWatch | None


class Channels:
    """The channels of one client, by loop."""

    def __init__(self, config: ClientConfig) -> None:
        """Raises `InvalidTarget` and `InvalidTls`; nothing is connected yet."""
        self.target = parse_target(config.target_url)
        self._credentials = None if config.tls_config is None else credentials(config.tls_config)
        self._config = config
        self._by_loop: dict[asyncio.AbstractEventLoop, _Link] = {}

    def get(self) -> grpc.aio.Channel:
        """The channel of the running loop; who calls on it holds it until the answer."""
        loop = asyncio.get_running_loop()
        link = self._by_loop.get(loop)
        if link is None:
            self._drop_closed_loops()
            link = self._by_loop[loop] = _Link(self._open(), self._watch())
        elif link.watch is not None and link.watch.changed():
            link.channel = self._open()
        return link.channel

    def _drop_closed_loops(self) -> None:
        for loop in list(self._by_loop):
            if loop.is_closed():
                self._by_loop.pop(loop, None)  # another thread may have done it

    def _watch(self) -> NameWatch | None:
        balancing = self._config.dns_load_balancing_config
        if balancing is None or self._config.http_connect_proxy_config or not self.target.host:
            return None
        millis = balancing.resolution_interval_millis
        return NameWatch(self.target.host, self.target.port, millis / 1000)

    async def connect(self, timeout: float | None) -> None:
        """Try to connect in the running loop, for `timeout` seconds; raises `CannotConnect`.

        An attempt that failed is no error here: the next call says why it did.
        """
        if self.target.secure and self._credentials is None:
            raise CannotConnect("an https URL needs a TLS configuration")
        tls = self._config.tls_config
        if tls is not None and (flaw := flaw_of(tls)) is not None:
            raise CannotConnect(flaw)
        try:
            await asyncio.wait_for(_attempted(self.get()), timeout)
        except TimeoutError:
            raise CannotConnect(f"no connection within {timeout:g} seconds") from None

    @property
    def connected(self) -> bool:
        """Whether there is a connection in the running loop now."""
        return self.get().get_state() is grpc.ChannelConnectivity.READY

    async def close(self) -> None:
        """Close the channel of the running loop; a call opens it again."""
        link = self._by_loop.pop(asyncio.get_running_loop(), None)
        if link is not None:
            await link.channel.close()

    def _open(self) -> grpc.aio.Channel:
        grpc_process.claim()
        options = _options(self._config, self.target)
        compression = (
            grpc.Compression.Gzip
            if self._config.grpc_compression == "gzip"
            else grpc.Compression.NoCompression
        )
        address = self.target.address
        if not self.target.secure:
            return grpc.aio.insecure_channel(address, options=options, compression=compression)
        return grpc.aio.secure_channel(
            address,
            self._credentials or grpc.ssl_channel_credentials(),
            options=options,
            compression=compression,
        )


async def _attempted(channel: grpc.aio.Channel) -> None:
    state = channel.get_state(try_to_connect=True)
    while state in _UNDECIDED:
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


def _options(config: ClientConfig, target: Target) -> list[tuple[str, str | int]]:
    options: list[tuple[str, str | int]] = [
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", _largest_answer()),
        ("grpc.compression_enabled_algorithms_bitset", _ALGORITHMS[config.grpc_compression]),
        ("grpc.primary_user_agent", f"{config.client_name}/{config.client_version}"),
        ("grpc.initial_reconnect_backoff_ms", _FIRST_RECONNECT_MILLIS),
        ("grpc.max_reconnect_backoff_ms", _LONGEST_RECONNECT_MILLIS),
    ]
    if config.connect_timeout_millis:
        # gRPC's minimum between two attempts to connect is the time it gives one of them.
        options.append(("grpc.min_reconnect_backoff_ms", config.connect_timeout_millis))
    if config.keep_alive_config is not None:
        options += [
            ("grpc.keepalive_time_ms", config.keep_alive_config.interval_millis),
            ("grpc.keepalive_timeout_ms", config.keep_alive_config.timeout_millis),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
        ]
    if config.http_connect_proxy_config is not None:
        options.append(("grpc.http_proxy", _proxy(config.http_connect_proxy_config)))
    else:
        options.append(("grpc.enable_http_proxy", 0))
        if config.dns_load_balancing_config is not None:
            millis = config.dns_load_balancing_config.resolution_interval_millis
            options += [
                ("grpc.lb_policy_name", "round_robin"),
                ("grpc.dns_min_time_between_resolutions_ms", millis),
            ]
    if target.secure and config.tls_config is not None:
        options += tls_options(config.tls_config)
    return options


def _largest_answer() -> int:
    """The limit of the environment; one that is no number is none."""
    given = os.environ.get("TEMPORAL_MAX_INCOMING_GRPC_BYTES", "")
    return int(given) if given.isdecimal() else _LARGEST_ANSWER


def _proxy(proxy: ClientHttpConnectProxyConfig) -> str:
    if proxy.basic_auth is None:
        return f"http://{proxy.target_host}"
    user, password = (quote(part, safe="") for part in proxy.basic_auth)
    return f"http://{user}:{password}@{proxy.target_host}"
