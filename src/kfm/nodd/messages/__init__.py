"""Messages that announce objects: one module for each format, and the parts that they share."""
