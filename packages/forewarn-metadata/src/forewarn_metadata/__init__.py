"""The service for VMs, and the feed that brings it the documents."""
