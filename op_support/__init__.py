"""What the target's compiler accepts: tables, checker, advice."""
