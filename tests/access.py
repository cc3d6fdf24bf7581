"""Tokens for services that run as processes of their own."""

from pathlib import Path

from forewarn_core.access.roles import Role
from forewarn_core.access.stimulus import AddToken
from forewarn_core.access.tokens import AccessToken, digest_of, written_token
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_server.control.plane import ControlPlane
from forewarn_store import open_store


def seed_token(
    store: Path | str, name: str, role: Role, owner: str = "", *, principal: str = ""
) -> str:
    """Put a token into a store that no service has open, and return it.

    `principal` is its holder; empty: the token's own name.
    """
    opened = open_store(str(store))
    token = AccessToken(name, principal or name, role, owner, digest_of("seeded"), 0, None)
    plane = ControlPlane(opened, NoticePolicy(), str)
    plane.commit(AddToken(token), actor="test", now_ms=0)
    opened.close()
    return written_token(name, "seeded")
