"""Writes the generated pages: references from the code, the diagram from the tables."""
