"""Forewarn: Scheduled Events for any cloud."""
