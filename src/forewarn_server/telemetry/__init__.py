"""Telemetry: metrics for Prometheus, and traces and logs for OpenTelemetry."""
