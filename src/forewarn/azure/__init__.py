"""Azure Resource Manager: requests about VMs from Azure's tools. Source: Z-1 to Z-4."""
