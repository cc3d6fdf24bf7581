"""The agent's core: decides the actions of a VM for its events; pure."""
