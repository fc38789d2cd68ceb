"""Operator tables, generated from the fact sheets."""
