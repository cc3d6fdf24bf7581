"""The options of an emulator, for tests."""

from forewarn_emulator.options import Options

__all__ = ["Options"]
