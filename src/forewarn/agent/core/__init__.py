"""The agent's core: decides what a VM does about its events; pure."""
