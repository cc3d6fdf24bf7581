"""The protocol between VMs and metadata services: versions, documents, approvals, times.

The agent imports these modules, so they import nothing larger than json.
"""
