"""The agent's core: what a VM does about its events; pure, from rules to records."""
