"""Cutting a model into parts that run one after the other."""
