"""The demo: a tour of the main features on real text, in its own Spark session."""
