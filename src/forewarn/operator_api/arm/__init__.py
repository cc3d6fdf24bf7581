"""Azure Resource Manager: users' own acts on their VMs, as Azure's tools send them. Source: Z."""
