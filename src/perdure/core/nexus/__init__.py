"""Nexus tasks: from the poll to the answer that the server has taken."""
