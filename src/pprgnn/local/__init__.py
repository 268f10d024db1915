"""Answers for a few nodes from their neighbourhood alone, with a proof."""
