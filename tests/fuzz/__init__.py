"""Damaged files: whatever is in them, they are read or refused with our own error, soon and within memory."""
