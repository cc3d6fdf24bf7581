"""One request, one answer, and no exception: who is asked may be dead, stopped or cut off."""

import http.client
import json
from collections.abc import Mapping
from typing import Any


def ask(
    address: str,
    port: int,
    method: str,
    path: str,
    body: str | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    limit_s: float = 8.0,
) -> tuple[int, dict[str, Any]]:
    """Send one request; return status and answer. Status 0: there was no answer in time."""
    connection = http.client.HTTPConnection(address, port, timeout=limit_s)
    try:
        connection.request(method, path, body, {"Metadata": "true", **(headers or {})})
        answer = connection.getresponse()
        text = answer.read()
        is_json = "json" in answer.headers.get("Content-Type", "")
        return answer.status, json.loads(text) if is_json and text else {}
    except (OSError, http.client.HTTPException, ValueError):
        return 0, {}
    finally:
        connection.close()
