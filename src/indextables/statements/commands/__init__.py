"""What each statement does: a statement and its caller in, an Arrow table out."""
