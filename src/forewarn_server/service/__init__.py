"""The service as a process: wiring, settings check, metadata workers, signals."""
