"""Tensor dumps that a device wrote, compared with the original model on any machine."""
