"""Split files: the bundle, its index and its rows, how they are written and how they are read."""
