"""Passes that make the graph smaller without changing a number."""
