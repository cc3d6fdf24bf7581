"""Measures the cost of metrics for VMs' polls."""
