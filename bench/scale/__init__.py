"""Measures the cost of the control plane for growing fleets."""
