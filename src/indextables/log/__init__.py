"""The transaction log: names, actions, encodings, and the replay of version files."""
