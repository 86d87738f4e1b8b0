"""The commands, one module each; `app` puts them together."""
