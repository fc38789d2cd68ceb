"""Compilers behind one protocol: the embedded host, and ATC."""
