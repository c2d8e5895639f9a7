"""Views: one module per kind of page; `view` reads what the page shows, as a frozen record."""
