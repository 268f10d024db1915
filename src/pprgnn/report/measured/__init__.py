"""What a report measures on a trained run, kept in its folder. Only `measure` imports torch."""
