"""Getting data in: files of many formats, and data of Python's libraries, into a table without loss."""
