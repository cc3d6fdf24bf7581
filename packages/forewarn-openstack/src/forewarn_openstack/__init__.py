"""The `nova` driver, for OpenStack's compute service.

The driver and the import of a topology are entry points of the groups `forewarn.drivers` and
`forewarn.sources`. Only `client.py` imports openstacksdk.
"""
