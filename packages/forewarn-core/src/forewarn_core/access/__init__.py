"""PURE: principals with their roles, tokens, and calls that wait for a second person.

`reducer.step` decides on changes; they are stored in the same commit as those of the core.
"""
