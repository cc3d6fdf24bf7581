"""What VMs and metadata services exchange: versions, documents, approvals, times. All pure.

The agent imports these modules, so they import nothing heavier than json.
"""
