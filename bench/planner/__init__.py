"""Compares the planner's waves and planning times with Ganeti's hroller."""
