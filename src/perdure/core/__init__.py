"""The worker core: workflow tasks in, activations and commands out, without any I/O."""
