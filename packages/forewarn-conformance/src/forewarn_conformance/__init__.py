"""Conformance checks of servers, clients and drivers, by statement of the contract."""
