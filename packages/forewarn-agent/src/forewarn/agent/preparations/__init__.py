"""Ready-made preparations, which run as hooks in separate processes.

A module has `prepare(settings, hook)` and `recover(settings, hook)`. `settings` are the settings of
the step, `hook` is the hook's standard input. Both functions return a sentence, raise on failure,
and can be repeated. `recover` undoes only changes recorded by `prepare`.
"""
