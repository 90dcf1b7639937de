"""The direct engine: durable workflows as a library."""
