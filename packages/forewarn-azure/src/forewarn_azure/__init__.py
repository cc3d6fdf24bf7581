"""Azure Resource Manager: serves requests of Azure's tools about VMs. Source: Z-1 to Z-4."""
