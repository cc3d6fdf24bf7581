"""The driver for libvirt hosts.

The driver and the import of a topology are entry points of the groups `forewarn.drivers` and
`forewarn.sources`. Only `connection.py` imports libvirt's library, at first use.
"""
