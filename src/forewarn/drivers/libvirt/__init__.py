"""The driver for hosts that run libvirt; only `connection.py` touches libvirt's own library.

That library is an extra (`pip install './forewarn[libvirt]'`) and is imported when it is used.
"""
