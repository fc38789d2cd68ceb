"""Graph rewrites: protocol, registry, manager, and the passes themselves."""
