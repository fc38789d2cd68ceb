"""Operators of onnxruntime's own domain, written in ONNX's: what its optimizer leaves in models."""
