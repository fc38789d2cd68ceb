"""What the tensors of a run need: liveness, order, offsets in one arena, and keeping a budget."""
