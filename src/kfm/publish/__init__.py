"""Publication: manifests, data contracts, targets and catalogue records."""
