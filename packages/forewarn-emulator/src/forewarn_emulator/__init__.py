"""The emulator: the service with a movable clock, scenarios and faults."""
