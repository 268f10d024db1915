"""A user's own graph: tables, files and objects of other libraries into a `GraphDataset`."""
