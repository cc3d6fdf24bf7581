"""Simulated worlds: the real service among machines, people, networks and disks that fail."""
