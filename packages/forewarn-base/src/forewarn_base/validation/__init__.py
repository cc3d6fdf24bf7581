"""Validation of operators' input: types of values, forms, request bodies, topology files."""
