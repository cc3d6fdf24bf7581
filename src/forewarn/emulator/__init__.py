"""The emulator: the whole service with its own clock, scenarios and faults."""
