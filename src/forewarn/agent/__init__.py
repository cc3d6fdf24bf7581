"""The agent: what watches scheduled events inside a VM and prepares for them; needs no package."""
