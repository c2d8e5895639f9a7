"""One small module for each shape of message that announces objects."""
