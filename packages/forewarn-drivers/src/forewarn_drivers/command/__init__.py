"""The `command` driver, which runs an operator's program for each call. Source: R-4."""
