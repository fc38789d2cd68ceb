"""Package data of the ATC driver: its options and its error codes."""
