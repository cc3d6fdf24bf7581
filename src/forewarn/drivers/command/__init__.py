"""The `command` driver: an operator's program for each call. Source: R-4."""
