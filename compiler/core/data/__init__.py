"""Package data of the core: the SoC table."""
