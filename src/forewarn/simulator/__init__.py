"""The simulator: whole fleets under faults, in virtual time; nothing imports it but the CLI."""
