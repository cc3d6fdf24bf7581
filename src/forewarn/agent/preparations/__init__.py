"""Ready-made preparations; each runs as a hook, in its own process.

A module has `prepare(settings, hook)` and `recover(settings, hook)`. `settings` are the settings of
the step, `hook` is the hook's standard input. Both return a sentence, raise on failure, and can be
repeated. `recover` undoes only the changes that `prepare` has recorded.
"""
