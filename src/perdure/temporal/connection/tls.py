"""TLS credentials of a client.

Without a root certificate of its own, a client trusts what the system trusts (`SSL_CERT_FILE` and
`SSL_CERT_DIR` count), not the list that comes with gRPC: companies add their own roots there.
"""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc

if TYPE_CHECKING:
    from temporalio.bridge.client import ClientTlsConfig

__all__ = ["InvalidTls", "credentials", "flaw_of", "tls_options"]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|[0-9A-Fa-f:.]+")

_CERTIFICATE: Final = re.compile(rb"-----BEGIN (X509 |TRUSTED )?CERTIFICATE-----")
_KEY: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")


class InvalidTls(ValueError):
    """A TLS configuration contradicts itself; the SDK expects a ValueError."""


def credentials(tls: ClientTlsConfig) -> grpc.ChannelCredentials:
    """What gRPC needs to know; raises `InvalidTls`."""
    if (tls.client_cert is None) != (tls.client_private_key is None):
        raise InvalidTls("Must have both client cert and private key or neither")
    if tls.verification_server_name is not None:
        if tls.server_root_ca_cert is None:
            raise InvalidTls("Must have server root CA cert when verification server name is set")
        if not _NAME.fullmatch(tls.verification_server_name):
            raise InvalidTls("Invalid verification server name: invalid dns name")
    roots = _system_roots() if tls.server_root_ca_cert is None else tls.server_root_ca_cert
    return grpc.ssl_channel_credentials(roots, tls.client_private_key, tls.client_cert)


def flaw_of(tls: ClientTlsConfig) -> str | None:
    """Which part cannot be what it should, None if all may: gRPC would not say which.

    The commonest mistake is a path, or the content of another file.
    """
    parts = (
        ("server_root_ca_cert", tls.server_root_ca_cert, _CERTIFICATE, "certificate"),
        ("client_cert", tls.client_cert, _CERTIFICATE, "certificate"),
        ("client_private_key", tls.client_private_key, _KEY, "private key"),
    )
    for name, given, pattern, kind in parts:
        if given is not None and not pattern.search(given):
            return f"{name} of the TLS configuration holds no {kind} in PEM form"
    return None


def tls_options(tls: ClientTlsConfig) -> list[tuple[str, str | int]]:
    """The name a connection asks for (by SNI and authority) and accepts a certificate of.

    gRPC has one name for all three, so that a verification name of its own is also asked for.
    """
    name = tls.verification_server_name or tls.domain
    return [("grpc.ssl_target_name_override", name)] if name else []


def _system_roots() -> bytes | None:
    """The certificates the system trusts; None, meaning gRPC's own list, if it names none."""
    context = ssl.create_default_context()
    found = [ssl.DER_cert_to_PEM_cert(each) for each in context.get_ca_certs(binary_form=True)]
    folder = os.environ.get("SSL_CERT_DIR") or (
        None if found else ssl.get_default_verify_paths().capath
    )
    if folder is not None:
        found += _certificates_in(Path(folder))
    return "".join(found).encode() or None


def _certificates_in(folder: Path) -> list[str]:
    try:
        files = [file for file in sorted(folder.iterdir()) if file.is_file()]
    except OSError:
        return []
    texts = [file.read_text(encoding="ascii", errors="replace") for file in files]
    return [f"{text}\n" for text in texts if "-----BEGIN CERTIFICATE-----" in text]
