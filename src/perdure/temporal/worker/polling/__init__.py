"""Polls for tasks: how many wait at the server, and for which queue."""
