"""Azure Resource Manager: users' acts on VMs, as Azure's tools send them. Source: Z-1 to Z-4."""
