"""Driver of the real ATC: option model, hand-over, run, and diagnosis of its failures."""
