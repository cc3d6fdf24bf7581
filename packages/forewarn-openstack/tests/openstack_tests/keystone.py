"""As much of Keystone as a client needs to find Nova: versions, and a token for a password.

Only the standard library is used: Nova's environment imports it, too.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

Start: TypeAlias = Callable[[str, list[tuple[str, str]]], Any]
Environ: TypeAlias = dict[str, Any]

USER, PASSWORD, TOKEN = "admin", "a-password", "a-token"
PROJECT = "6f70656e737461636b20342065766572"
FAR_AWAY = "2099-01-01T00:00:00.000000Z"


def clouds_yaml(port: int, password: str = PASSWORD) -> str:
    """Return a `clouds.yaml` with the cloud `test`."""
    return f"""clouds:
  test:
    auth:
      auth_url: http://127.0.0.1:{port}/identity/v3
      username: {USER}
      password: {password}
      project_id: {PROJECT}
      user_domain_id: default
    identity_api_version: 3
"""


def answer(environ: Environ, start: Start) -> Iterable[bytes]:
    """Answer a request below `/identity`, as a WSGI application does."""
    here = f"http://{environ['HTTP_HOST']}"
    if environ["REQUEST_METHOD"] != "POST":
        links = [{"rel": "self", "href": f"{here}/identity/v3/"}]
        return said(
            start, "200 OK", {"version": {"id": "v3.14", "status": "stable", "links": links}}
        )
    size = int(environ.get("CONTENT_LENGTH") or 0)
    asked = json.loads(environ["wsgi.input"].read(size))
    if asked["auth"]["identity"]["password"]["user"]["password"] != PASSWORD:
        error = {"code": 401, "message": "The request you have made requires authentication."}
        return said(start, "401 Unauthorized", {"error": error})
    endpoint = {"interface": "public", "region": "one", "region_id": "one", "id": "c"}
    compute = {"type": "compute", "name": "nova", "id": "c"}
    token = {
        "methods": ["password"],
        "user": {"id": USER, "name": USER, "domain": {"id": "default", "name": "Default"}},
        "project": {"id": PROJECT, "name": "p", "domain": {"id": "default", "name": "Default"}},
        "roles": [{"id": "r", "name": "admin"}],
        "issued_at": "2026-01-01T00:00:00.000000Z",
        "expires_at": FAR_AWAY,
        "catalog": [{**compute, "endpoints": [{**endpoint, "url": f"{here}/v2.1"}]}],
    }
    return said(start, "201 Created", {"token": token}, ("X-Subject-Token", TOKEN))


def said(start: Start, status: str, body: object, *headers: tuple[str, str]) -> list[bytes]:
    """Answer with JSON."""
    start(status, [("Content-Type", "application/json"), *headers])
    return [json.dumps(body).encode()]
