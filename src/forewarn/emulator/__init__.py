"""The emulator: the whole service with a clock of its own, scenarios and faults on demand."""
