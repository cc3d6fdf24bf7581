"""The driver for Kubernetes nodes and KubeVirt's VMs; only `client.py` calls the API server."""
