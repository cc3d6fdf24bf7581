"""The `nova` driver: OpenStack's compute service does the work and stores its state.

`client.py` is the only module that touches openstacksdk, an extra.
"""
