"""What callers who mean harm can do to the others."""
