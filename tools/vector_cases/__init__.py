"""The cases behind `vectors/*.json`: what goes in, and wherever it can be had from elsewhere, what comes out."""
