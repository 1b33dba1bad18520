"""Agent Lightning's contributions."""
