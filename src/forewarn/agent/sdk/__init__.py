"""The SDK: clients of a metadata service, sync and async, for the agent and for programs."""
