"""Metrics and logs: what is measured and said, and the ways it leaves the process."""
