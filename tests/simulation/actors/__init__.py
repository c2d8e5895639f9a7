"""Small parts played beside the updates, on the same clock and from the same seed.

Each exercises one pure piece of the kernel against a model that knows the truth by construction.
"""
