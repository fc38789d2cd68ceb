"""Comparison with the original model, layer by layer."""
