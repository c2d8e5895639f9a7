"""HTTP: webhooks, the API, the console, STAC, metrics. Needs the extra `serve`."""
