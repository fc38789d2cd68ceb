"""Models in: PyTorch, Hugging Face folders and ONNX files."""
