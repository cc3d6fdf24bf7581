"""The operators' commands, clients of the operator API."""
