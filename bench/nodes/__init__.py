"""Measures the delay, cost and start of metadata nodes."""
