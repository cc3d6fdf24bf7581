"""Measurements: one module for each published figure; nothing of the product imports them."""
