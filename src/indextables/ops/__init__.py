"""What can be done to a table, one file per operation."""
