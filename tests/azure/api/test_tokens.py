"""Tokens for Azure's tools: signed, short-lived, and worth nothing once their operator is gone."""

from __future__ import annotations

import pytest

from forewarn.azure import tokens
from forewarn.azure.tokens import TokenIssuer

KEY = b"k" * 32
ANNA = {"anna": b"the-token-of-anna"}


def issue(issuer: TokenIssuer) -> str:
    """Return a token of anna's."""
    return issuer.issue("anna", audience="a", issuer="i")


@pytest.mark.parametrize("operators", [{}, {"anna": b"another-token"}], ids=["removed", "changed"])
def test_token_ends_with_the_operators_own(operators: dict[str, bytes]) -> None:
    """A token outlives neither its operator nor the operator's own token. Source: Z-3."""
    token = issue(TokenIssuer(KEY, ANNA))
    assert TokenIssuer(KEY, ANNA).operator(token) == "anna"
    assert TokenIssuer(KEY, operators).operator(token) == ""


def test_token_that_would_be_good_for_ever_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However it was signed, a token is good for little more than its lifetime."""
    issuer = TokenIssuer(KEY, ANNA)
    with monkeypatch.context() as patched:
        patched.setattr(tokens, "LIFETIME_S", 10**9)
        token = issue(issuer)
    assert issuer.operator(token) == ""
