"""Measures the effect of malicious callers on other callers."""
