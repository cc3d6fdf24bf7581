"""Default values and shared texts of options, for modules that need no parser."""

from __future__ import annotations

from pathlib import Path

DEFAULT_SERVER = "http://127.0.0.1:8470"
#: Default settings file, installed by the packages.
DEFAULT_CONFIG = Path("/etc/forewarn/forewarn.toml")
#: Remaining validity below which a certificate is reported: 14 days.
CERTIFICATE_MS_MIN = 14 * 86_400_000
#: Default of `--limit`.
LIST_MAX = 100
#: Help for the faults of the emulator.
FAULT_HELP = (
    "KIND is slow-first, empty-200, 410, 429, 500, reset, truncate, incarnation or unsigned; ARG"
    " is the duration of slow-first (5s), the VM of incarnation, or the number of answers of the"
    " others"
)
