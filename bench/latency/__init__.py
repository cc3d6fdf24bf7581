"""Measures the time from an operator's call, and from the last approval, to the document."""
