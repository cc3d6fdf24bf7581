"""Validation of operators' input: kinds of values, forms, bodies, topology files."""
