"""How metadata nodes follow the control plane: messages, the server and the follower."""
