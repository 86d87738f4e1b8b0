"""Split files: writers and readers of the bundle, its index and its rows."""
