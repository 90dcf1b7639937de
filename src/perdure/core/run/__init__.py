"""One workflow run: its machines, its state, and its work on one workflow task after another."""
