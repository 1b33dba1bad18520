"""The same calls on Agent Lightning's own store and on ours: `make test-agent-lightning` runs them side by side."""
