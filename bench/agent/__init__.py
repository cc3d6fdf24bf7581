"""What the agent costs, next to a Go program that polls the same service at the same rate."""
