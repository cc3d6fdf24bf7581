"""Addresses of the form `HOST:PORT`."""

import pytest

from forewarn_base.host_port import host_and_port, host_of_header, joined_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("h1:0", "h1", 0), ("127.0.0.1:65535", "127.0.0.1", 65535), ("[::1]:80", "::1", 80)],
)
def test_address_has_a_host_and_a_port(text: str, host: str, port: int) -> None:
    """Brackets are how an IPv6 address is written, and no part of it."""
    assert host_and_port(text) == (host, port)
    assert joined_address(host, port) == text


@pytest.mark.parametrize(
    "text", ["", "h1", ":80", "[]:80", "h1:", "h1:65536", "h1:\uff18", "h1:-1"]
)
def test_other_text_is_refused(text: str) -> None:
    """The error names the text."""
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        host_and_port(text)


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("Name", "name"),
        ("name:80", "name"),
        ("name:", "name"),
        ("[FE80::1]:80", "[fe80::1]"),
        ("[fe80::1]", "[fe80::1]"),
        ("", ""),
    ],
)
def test_host_of_a_header_has_no_port(header: str, host: str) -> None:
    """The port says nothing about the server that a request names. Source: E-8."""
    assert host_of_header(header) == host
