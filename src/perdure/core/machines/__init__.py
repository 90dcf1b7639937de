"""The state machines of the worker core, one module per kind of command."""
