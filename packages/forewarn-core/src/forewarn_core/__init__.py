"""The pure core: decides about a fleet from its state, a stimulus and the time."""
