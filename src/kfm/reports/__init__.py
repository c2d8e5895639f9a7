"""Records as the documents that programs get: the same from a command and over HTTP."""
