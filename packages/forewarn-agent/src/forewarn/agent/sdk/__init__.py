"""The SDK: synchronous and asynchronous clients of a metadata service, also used by the agent."""
