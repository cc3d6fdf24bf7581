"""PURE: maintenances of many hosts: their records, states, waves and gates."""
