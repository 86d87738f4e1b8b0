"""What builds the project's generated pages; not part of the wheel."""
