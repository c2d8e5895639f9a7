"""HTTP: webhooks, the API, the console, STAC, metrics. Most of it needs the extra `serve`."""
