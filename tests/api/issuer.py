"""A local OpenID Connect issuer whose keys rotate, for tests of signing in."""

import base64
import hashlib
import json
import threading
from typing import Any, TypeAlias
from urllib.parse import parse_qs, quote_plus, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.api.live import NOW_MS
from tests.serving import HttpServer, Request

Json: TypeAlias = Any
CLIENT = "forewarn-test"
NOW_S = NOW_MS // 1000


class Issuer:
    """Publishes its keys, and signs in whoever `user` is."""

    def __init__(self) -> None:
        """Start with one key."""
        self.user, self.groups = "kim", ["sre"]
        #: The path of each request.
        self.asked: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}
        #: Errors that the device flow answers, one after another, before the token.
        self.device_answers: list[str] = []
        self.keys: dict[str, rsa.RSAPrivateKey] = {}
        self.rotate("key-1")
        self.oversized = False
        #: Whether it publishes addresses for signing in.
        self.endpoints = True
        self.secret = ""
        #: Unset while it accepts requests and answers none.
        self.answers = threading.Event()
        self.answers.set()
        self._listen(0)

    def _listen(self, port: int) -> None:
        self._server = HttpServer(self._respond, port=port)
        self.port, self.url, self.stop = self._server.port, self._server.url, self._server.close

    def _respond(self, request: Request) -> tuple[int, bytes, dict[str, str]]:
        parts = urlsplit(request.path)
        query = request.body.decode() if request.method == "POST" else parts.query
        form = {name: values[0] for name, values in parse_qs(query).items()}
        form["proof"] = request.headers.get("authorization", "")
        status, text = self.answer(parts.path, form)
        return (302, b"", {"Location": text}) if status == 302 else (status, text.encode(), {})

    def resume(self) -> None:
        """Answer again, at the same address."""
        self._listen(self.port)

    def rotate(self, key_id: str) -> None:
        """Sign with a new key, and forget the earlier ones."""
        self.keys = {key_id: rsa.generate_private_key(public_exponent=65537, key_size=2048)}

    def claims(self, **more: object) -> Json:
        """Return the claims of the user; None leaves one out."""
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": self.user,
            "groups": self.groups,
            "iat": NOW_S,
            "exp": NOW_S + 7200,
            **more,
        }
        return {name: text for name, text in claims.items() if text is not None}

    def token(self, *, headers: Json = None, **more: object) -> str:
        """Return a token of the user, signed with the current key."""
        ((key_id, key),) = self.keys.items()
        headers = {"kid": key_id, **(headers or {})}
        return jwt.encode(self.claims(**more), key, "RS256", headers)

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, str]:
        """Return the status and body, or the address to go on to."""
        self.asked.append(path)
        self.answers.wait()
        match path:
            case "/.well-known/openid-configuration":
                urls = {
                    f"{name}_endpoint": f"{self.url}/{name}"
                    for name in ("authorization", "token", "device_authorization")
                }
                about = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
                return 200, json.dumps(about | (urls if self.endpoints else {}))
            case "/keys":
                keys = [
                    {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": n}
                    for n, key in self.keys.items()
                ]
                padding = " " * 300_000 if self.oversized else ""
                return 200, json.dumps({"keys": keys}) + padding
            case "/authorization":
                code = f"code-{len(self._codes)}"
                self._codes[code] = form
                query = urlencode({"code": code, "state": form["state"], "session_state": "x"})
                return 302, f"{form['redirect_uri']}?{query}"
            case "/device_authorization":
                page = f"{self.url}/device"
                codes = {"device_code": "dc", "user_code": "WDJB-MJHT", "verification_uri": page}
                return 200, json.dumps({**codes, "expires_in": 600, "interval": 0})
            case "/token" if "device_code" in form:
                if self.device_answers:
                    return 400, json.dumps({"error": self.device_answers.pop(0)})
                return 200, json.dumps({"id_token": self.token()})
            case "/token":
                begun = self._codes.pop(form["code"], None)
                pair = f"{CLIENT}:{quote_plus(self.secret)}".encode()
                proof = f"Basic {base64.b64encode(pair).decode()}" if self.secret else ""
                if begun is None or not _fits(begun, form) or form.get("proof", "") != proof:
                    return 400, json.dumps({"error": "invalid_grant"})
                return 200, json.dumps({"id_token": self.token(nonce=begun["nonce"])})
        return 404, "{}"


def _fits(begun: dict[str, str], form: dict[str, str]) -> bool:
    digest = hashlib.sha256(form["code_verifier"].encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    same = all(begun[name] == form[name] for name in ("client_id", "redirect_uri"))
    return same and begun["code_challenge"] == challenge
