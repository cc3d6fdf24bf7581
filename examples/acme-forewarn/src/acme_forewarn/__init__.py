"""Acme hypervisors for Forewarn; Acme is made up, and runs in a directory."""
