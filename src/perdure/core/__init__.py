"""The worker core: workflow tasks in, activations and commands out, without any I/O.

"Lang" is the SDK above the core, which runs the user's code. It is told things in an *activation*,
made of *jobs*, and answers with a *completion*, made of *commands*. The *shell* is whoever has the
loop, the clock and the connection (`perdure.temporal.worker`): it hands in what happens, and
carries out what the core returns. Who waits for whom is said in `inputs`.

House rules: nothing here waits, reads a clock, draws a random number or knows a thread. Times come
in with what happens. A part of the core returns what is to be done, as records, and never does it.
"""
