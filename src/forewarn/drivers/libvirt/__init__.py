"""The driver for libvirt hosts; only `connection.py` imports libvirt's library.

The library is an extra (`pip install './forewarn[libvirt]'`), imported at first use.
"""
