"""One graph over several processes: partition, exchange of rows, and what all must agree on."""
