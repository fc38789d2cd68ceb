"""Passes that put several nodes into one that the target has a kernel for."""
