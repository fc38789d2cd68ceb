"""Weight quantization: schemes, algorithms, the forms that Ascend's kernels take, the report."""
