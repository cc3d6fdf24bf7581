"""The driver for libvirt hosts.

Only `connection.py` imports libvirt's library, at first use. The library is an extra: `pip install
'./forewarn[libvirt]'`.
"""
