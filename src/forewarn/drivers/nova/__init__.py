"""The `nova` driver: work is done by OpenStack's compute service, and its state is read there.

`client.py` is the only module that touches openstacksdk, an extra.
"""
