"""The systems that ours is compared with, one file each, thin over PyG and grakel."""
