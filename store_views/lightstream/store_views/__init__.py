"""What is stored and asked: the view in SQL, the stores, exports and imports."""
