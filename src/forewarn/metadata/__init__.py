"""The metadata service: shows documents to VMs and takes their approvals."""
