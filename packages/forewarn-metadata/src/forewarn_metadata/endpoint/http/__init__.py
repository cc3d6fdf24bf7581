"""HTTP for the metadata service: requests, responses, connections and their transports."""
