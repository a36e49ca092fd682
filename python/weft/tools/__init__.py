"""Tools over what was recorded, one file each."""
