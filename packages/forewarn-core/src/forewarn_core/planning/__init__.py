"""The pure planner makes a plan from fleet, live state, policy and time; without I/O or clock."""
