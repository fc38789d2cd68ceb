"""Brings models of any opset from 7 on to opset 18, the newest that ATC's parser knows (D21)."""
