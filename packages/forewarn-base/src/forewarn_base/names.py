"""The form of names, and the length of texts, in records of a fleet."""

from __future__ import annotations

import re

#: Form of the name of a host, group or VM: it appears in URLs, documents and shell commands.
NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
#: Maximum length of a description, an owner or another text.
TEXT_LENGTH_MAX = 256
