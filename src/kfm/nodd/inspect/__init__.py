"""Operators that look at one announced object: is it whole, and does it say what its key says?"""
