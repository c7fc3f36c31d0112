"""Augmentation on the device: draw parameters for every image, then apply them to all images at once."""
