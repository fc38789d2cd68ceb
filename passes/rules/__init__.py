"""Rewrite rules of users: what to look for and what to put there, as two functions.

    from cannc import rule

    def pattern(op, x):
        return op.Min(op.Relu(x), 6.0)

    def replacement(op, x):
        return op.Clip(x, 0.0, 6.0)

    relu6 = rule(pattern, replacement)

- Parameters stand for any value, the same one wherever they stand; numbers for constants of one
  element, None for an input that is left out. Commutative operators match either way round.
- Keyword arguments are attributes: a pattern demands those that it writes, with these values.
- ``rule(..., condition=f)``: ``f`` gets the matched ``onnx_ir.Value`` of each parameter; it returns
  True, or False or a text that says why this place is left alone.
- In a replacement numbers and numpy arrays become constants; operators of domain ``npu`` need a
  kernel on the target. It may also return one of its parameters.

Files with rules are executed, so they are only read when named: ``cannc optimize --rules my.py``.
"""

from cannc.passes.rules.rule import Rule, rule

__all__ = ["Rule", "rule"]
