"""Addresses as requests and files give them."""

import ipaddress
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn_base.validation.fields import IpAddress, ValidationFailed

_PARTS = st.one_of(
    st.integers(0, 299).map(str), st.sampled_from(["", "00", "01", "-1", "1 ", "\uff11"])
)


@given(st.lists(_PARTS, min_size=3, max_size=5).map(".".join))
def test_address_ipv4_is_what_the_standard_library_takes(text: str) -> None:
    """An IPv4 address is read exactly where it is one, and one machine's. Source: S-6."""
    expected = ""
    with suppress(ValueError):
        address = ipaddress.IPv4Address(text)
        one_machine = not (address.is_unspecified or address.is_multicast)
        expected = str(address) if one_machine and text != "255.255.255.255" else ""
    if expected:
        assert IpAddress().read(text, "here") == expected
    else:
        with pytest.raises(ValidationFailed, match=r"here must be (an IPv4|the address)"):
            IpAddress().read(text, "here")
