"""What the service says of itself to other people's tools: metrics for Prometheus, traces."""
