"""cannc: PyTorch and ONNX models into offline ``.om`` artifacts for Ascend NPUs."""

__version__ = "0.1.0"
