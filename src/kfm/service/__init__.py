"""The service: scheduler, dispatcher, runner, requests, approvals, incidents, notifications."""
