"""Calls to a Temporal server: channels, addresses, TLS, headers, retries."""
