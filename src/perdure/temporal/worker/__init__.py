"""The shell around the pure core: polls, answers, timers and slots, on the caller's event loop."""
