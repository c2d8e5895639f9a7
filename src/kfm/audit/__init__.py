"""The audit log: verification of chain and seals, anchors, exports."""
