"""How long each stage takes here, and how long others take for the same work."""
