"""What is in Agent Lightning's contributions."""
