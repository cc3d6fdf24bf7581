"""Boundary values of each schema of the OpenAPI document, which take long to collect."""

import pytest
from hypothesis import HealthCheck, settings

from tests.api.live import Json, Live
from tests.api.test_openapi import check, closed, schema_of

__all__ = ["closed"]
COVERED = schema_of(boundaries=True)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:Skipped test cases")
@COVERED.parametrize()
@pytest.mark.parametrize("role", ["admin"])
@settings(max_examples=1, suppress_health_check=list(HealthCheck), deadline=None)
def test_boundary_values_find_nothing_unexpected(case: Json, closed: Live, role: str) -> None:
    """The same holds for the boundary values of each schema, valid and invalid."""
    assert role == "admin"
    check(case, closed)
