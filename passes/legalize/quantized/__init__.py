"""Quantized operators, written in float32: integers up to 2^24 are exact there."""
