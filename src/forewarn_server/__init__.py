"""The service: control plane, operator API, page, outbox, telemetry and command line."""
