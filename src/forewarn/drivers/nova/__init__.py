"""The `nova` driver, for OpenStack's compute service.

Only `client.py` imports openstacksdk, which is an extra.
"""
