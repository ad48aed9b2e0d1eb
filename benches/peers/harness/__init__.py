"""Measures peers of Deedbook beside each other; `../run` is the command."""
