"""Publishing: manifests, the publisher, data contracts, targets."""
