"""Our core for every Python process of a run, also for those that a test of the suite starts."""

from perdure.temporal import install

install()
