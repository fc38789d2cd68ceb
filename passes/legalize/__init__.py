"""Passes that write an operator in a form that the target's compiler takes."""
