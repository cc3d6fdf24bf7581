"""The metadata service: sends documents to VMs and receives approvals."""
