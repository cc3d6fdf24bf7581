"""The pure planner: turns fleet, live state, policy and time into a plan.

No I/O, no clock, no core.
"""
