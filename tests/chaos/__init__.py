"""Kills at random moments: what comes out in the end is what comes out undisturbed."""
