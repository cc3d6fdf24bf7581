"""Compares the agent's cost with a Go program that polls the same service at the same rate."""
