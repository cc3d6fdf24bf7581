"""Replication from the control plane to metadata nodes: messages, server and client."""
