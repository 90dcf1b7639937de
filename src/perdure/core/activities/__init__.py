"""Activities that the server hands out, from the polled task to the report of its result."""
