"""Measures the time from the start of `forewarn emulate` to its first answer."""
