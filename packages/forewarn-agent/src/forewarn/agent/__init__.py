"""The agent inside a VM, which prepares the VM for scheduled events; standard library only."""
