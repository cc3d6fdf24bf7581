"""The `command` driver: a program of the operator's for each verb. Source: R-4."""
