"""Agent Lightning's own store and adapters beside ours, on the same calls and traces: `make test-agent-lightning`."""
