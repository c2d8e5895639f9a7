"""Messages that announce objects, one module for each shape, and what they have in common."""
