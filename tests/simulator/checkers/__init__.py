"""Checks of a simulated world from outside: invariants, documents, coordination, durable state."""
