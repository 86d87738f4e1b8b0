"""SQL of enabled sessions: the search operators, tables by path and by name, and functions.

`spark.sql` hands a text to `rewrite`, which finds the search operators (`operators`), resolves them in the scopes of
the query (`scopes`), replaces the tables they search by relations of their own (`tables`), and leaves the rest of the
text as it is. Searches that no index can answer become calls of a function (`matching`).
"""
