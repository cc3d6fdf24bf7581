"""PURE: fleet, live state, policy and time in, a plan out. No I/O, no clock, no core."""
