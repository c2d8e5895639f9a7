"""A seeded world to look at: sixty days of a project in trouble, by the product on a clock of its own.

`make world` makes it, serves it on 127.0.0.1 and prints the address and the tokens; tests look at a copy.
"""
