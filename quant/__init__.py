"""Weight quantization: schemes, scales, packing, and the forms that kernels take."""
