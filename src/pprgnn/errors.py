"""What is wrong with the data, in one sentence with the remedy."""


class DataError(ValueError):
    """Data that cannot be used: the message names the file, line or column, what was expected, and what to do."""
