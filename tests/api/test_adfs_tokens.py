"""Tokens for Azure's tools: signed, short-lived, and worth nothing once their operator is gone."""

import pytest

from forewarn_server import adfs_tokens
from forewarn_server.adfs_tokens import TokenIssuer

KEY = b"k" * 32


def anna(_: str) -> str:
    """Return what is kept of anna's token."""
    return "the-digest-of-anna"


def issue(issuer: TokenIssuer) -> str:
    """Return a token of anna's."""
    return issuer.issue("anna", audience="a", issuer="i")


@pytest.mark.parametrize("kept", ["", "another"], ids=["revoked", "changed"])
def test_token_ends_with_the_operators_own(kept: str) -> None:
    """What was given out for a token does not outlive it. Source: Z-3."""
    token = issue(TokenIssuer(KEY, anna))
    assert TokenIssuer(KEY, anna).operator(token) == "anna"
    assert TokenIssuer(KEY, lambda _: kept).operator(token) == ""


@pytest.mark.parametrize("forgery", ["unsigned", "none", "other-key", "changed"])
def test_forged_token_is_refused(forgery: str) -> None:
    """The signature counts, and the algorithm that a token names does not. Source: Z-3."""
    issuer = TokenIssuer(KEY, anna)
    head, claims, signature = issue(issuer).split(".")
    forged = {
        "unsigned": f"{head}.{claims}.",
        "none": f"eyJhbGciOiJub25lIn0.{claims}.",
        "other-key": issue(TokenIssuer(b"x" * 32, anna)),
        "changed": f"{head}.{claims[:-4]}AAAA.{signature}",
    }
    assert issuer.operator(forged[forgery]) == ""


def test_token_that_would_be_good_for_ever_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However it was signed, a token is good for little more than its lifetime."""
    issuer = TokenIssuer(KEY, anna)
    with monkeypatch.context() as patched:
        patched.setattr(adfs_tokens, "LIFETIME_S", 10**9)
        token = issue(issuer)
    assert issuer.operator(token) == ""
