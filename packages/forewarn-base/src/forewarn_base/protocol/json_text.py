"""JSON of the protocol: writes it compactly, and reads UTF-8 with or without a byte order mark."""

from __future__ import annotations

import json

#: Return a value as one compact line.
encode_json = json.JSONEncoder(separators=(",", ":")).encode


def parse_json(body: bytes | str) -> object:
    """Return the value of a JSON body.

    Raises:
        ValueError: the body is not JSON, or not UTF-8.
        RecursionError: the body is nested too deeply.
    """
    text = body if isinstance(body, str) else body.decode("utf-8")
    form: object = json.loads(text.removeprefix("\ufeff"))
    return form
