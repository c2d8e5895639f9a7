"""The container and its pods, as far as they can be had without a registry and a cluster."""
