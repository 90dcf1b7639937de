"""What a worker lets people see of its work: log, metrics, traces, warnings, lines of code."""
