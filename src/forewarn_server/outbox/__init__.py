"""The outbox: delivers transitions from history to other systems, in order and at least once."""
