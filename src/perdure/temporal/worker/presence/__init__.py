"""How a worker is known to the server: its heartbeats, its numbers, and commands for it."""
