"""Local activities: run by the worker that runs their workflow, within the workflow task."""
