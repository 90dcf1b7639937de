"""Histories: what kinds of events there are, how they are cut, and how they come in pages."""
