"""Few-shot medical image classification: ABO-Med, MedRAug and their rivals, on your own images."""

__version__ = "0.1.0.dev0"
