"""Passes that change the dtype in which the model computes."""
