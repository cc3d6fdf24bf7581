"""What Kubernetes shows of scheduled events: node conditions and their annotations; pure."""
