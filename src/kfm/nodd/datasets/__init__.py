"""The datasets that kfm knows: one module, one `DATASET`, no code beyond what its keys need."""
