"""Slots: how many tasks of each kind may run at once, and who decides it."""
