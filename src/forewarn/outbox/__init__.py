"""Transitions for other people's systems: read from history, delivered in order, at least once."""
