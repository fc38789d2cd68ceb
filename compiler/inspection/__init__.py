"""What is in an artifact: .om of any generation, om2, .onnx; and what two of them differ in."""
