"""The driver for Kubernetes nodes and KubeVirt's VMs; only `client.py` talks to the API server."""
