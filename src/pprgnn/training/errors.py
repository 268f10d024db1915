"""The error of this room."""

from pprgnn.errors import DataError


class TrainingError(DataError):
    """Training cannot start or go on; the message is one sentence with the remedy."""
