"""Measures what grows in a busy fleet, and what its limits bound."""
