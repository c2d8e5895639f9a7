"""One module a page: `view` reads what the page tells and gives it as a frozen record."""
