"""Measures the cost of the page in a browser for large fleets."""
