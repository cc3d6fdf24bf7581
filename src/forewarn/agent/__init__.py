"""The agent: watches scheduled events inside a VM and prepares for them; standard library only."""
