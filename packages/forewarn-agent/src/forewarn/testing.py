"""The emulator and the agent in tests; the pytest plugin is in the package `forewarn-emulator`."""

import forewarn.emulator  # noqa: F401 - says what to install
from forewarn_emulator.testing import (
    ACT_S_MAX,
    API_VERSION,
    LOOK_S,
    AgentThread,
    EmulatorStopped,
    EmulatorThread,
    forewarn_agent,
    forewarn_emulator,
    forewarn_options,
)

__all__ = [
    "ACT_S_MAX",
    "API_VERSION",
    "LOOK_S",
    "AgentThread",
    "EmulatorStopped",
    "EmulatorThread",
    "forewarn_agent",
    "forewarn_emulator",
    "forewarn_options",
]
