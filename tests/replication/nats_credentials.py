"""An operator, an account and users for nats-server, as `nsc` makes them."""

import base64
import json
import random
from pathlib import Path

import nkeys

ALL = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT = {"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}


class Signer:
    """One key pair."""

    def __init__(self, prefix: int) -> None:
        """Make it; not for anything but tests."""
        self.seed: bytes = nkeys.encode_seed(random.randbytes(32), prefix)
        self.pair = nkeys.from_seed(bytearray(self.seed))
        self.public: str = self.pair.public_key.decode()

    def jwt(self, subject: str, name: str, claims: dict[str, object]) -> str:
        """Sign claims about another key."""
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        body = {"jti": name, "iat": 1, "iss": self.public, "name": name, "sub": subject}
        body["nats"] = {**claims, "version": 2}
        signed = f"{_part(json.dumps(head))}.{_part(json.dumps(body))}"
        return f"{signed}.{_part(self.pair.sign(signed.encode()))}"


def write_credentials(folder: Path, **users: tuple[str, str]) -> str:
    """Write `NAME.creds` for users with the subjects they publish and subscribe to.

    Returns:
        the settings of nats-server that lets them in.
    """
    operator, account = Signer(nkeys.PREFIX_BYTE_OPERATOR), Signer(nkeys.PREFIX_BYTE_ACCOUNT)
    for name, (publish, subscribe) in users.items():
        user = Signer(nkeys.PREFIX_BYTE_USER)
        allowed = {"pub": {"allow": [publish]}, "sub": {"allow": [subscribe]}}
        jwt = account.jwt(user.public, name, {**ALL, **allowed, "type": "user"})
        parts = {"NATS USER JWT": jwt, "USER NKEY SEED": user.seed.decode()}
        (folder / f"{name}.creds").write_text(
            "".join(
                f"-----BEGIN {kind}-----\n{text}\n------END {kind}------\n\n"
                for kind, text in parts.items()
            )
        )
    claims: dict[str, object] = {"limits": {**ALL, **ACCOUNT}, "type": "account"}
    account_jwt = operator.jwt(account.public, "fleet", claims)
    operator_jwt = operator.jwt(operator.public, "operator", {"type": "operator"})
    return (
        f"operator: {operator_jwt}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {account.public}: {account_jwt} }}\n"
    )


def _part(content: str | bytes) -> str:
    text = content.encode() if isinstance(content, str) else content
    return base64.urlsafe_b64encode(text).decode().rstrip("=")
