"""Reports read from the ledger: the documents that commands and the API answer with."""
