"""The demo: a table of real text, from the first row to the last statement, on a Spark session of its own."""
