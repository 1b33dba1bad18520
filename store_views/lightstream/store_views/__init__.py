"""Storage and queries: the view in SQL, the stores, exports and imports."""
