"""The agent's core: what a VM does about the events it is told of; pure, from rules to records."""
