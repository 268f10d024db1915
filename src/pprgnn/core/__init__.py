"""The mathematics: torch only, no PyG, no files, no training."""
