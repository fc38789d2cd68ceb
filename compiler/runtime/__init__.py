"""Running artifacts: sessions, and the numerics of the simulated device."""
