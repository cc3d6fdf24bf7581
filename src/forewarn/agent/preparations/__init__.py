"""Ready-made preparations, each run as a hook in a process of its own; nothing is shared here.

A module has `prepare(settings, hook)` and `recover(settings, hook)`: `settings` are those of its
step, `hook` is what a hook reads on standard input; each returns a sentence and raises on failure.
Both may be repeated, and `recover` undoes only what its own `prepare` has written down.
"""
